// Package lab measures what has a right answer: it runs blast's engine against its own queueing target and holds what was measured
// against what was computed.
//
// Each experiment is one of the known cases of load testing: a stall under open, closed and blocking load, a generator that is the bottleneck,
// caps, Little's law, the coordinated omission correction, shards, and faults injected by seed. The formulas stand beside the
// experiments. An experiment that fails may be repeated: a neighbour on the machine can spoil a run, but what passing means stays the same,
// and how often it was tried is told. Linux only; no privilege is needed. Traffic goes to loopback.
package lab
