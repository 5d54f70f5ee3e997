// Package prove tells a slow target from a slow generator by five controls: the generator against a no-op on its own host, its own
// resources, the target's resources, the same load against a no-op, and two generators. It judges evidence that was gathered elsewhere
// (cmd/blast) and says "cannot tell" where that conflicts or is missing.
//
// It is pure: the same evidence gives the same proof. It needs no privilege and no kernel. docs/prove.md says what each control can and
// cannot tell.
package prove
