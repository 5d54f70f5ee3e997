// Package backendtest holds what a backend and its user are tested with: [Run], the conformance suite that says in code what the
// contract in package backend says in words, and [Fake], a backend in memory that fails on request.
//
// Run needs Linux and no privilege of its own; what a backend needs, its own test sees to.
package backendtest
