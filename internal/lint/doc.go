// Package lint keeps the rules of this repository as Go tests: run it with `make lint`.
//
// It holds no code that a program could import. Each rule reads the parsed sources (no types, no network, no
// privilege), and each finding names its remedy. A rule is one function from a tree to findings and stands in
// the table of rules_test.go; every rule is also fed sources that break it and sources that only look as if they did,
// because a rule that cannot fail is a defect.
package lint
