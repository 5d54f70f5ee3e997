// Package engine is the one rate scheduler: it drives any backend by any schedule and never knows which.
//
// A worker is one locked, pinned thread with its own sender, its share of the schedule and its own histograms. Its loop:
//
//  1. take the trains of its share that are due, at most one batch, from the cursor of pace
//  2. reserve slots of the backend, stamp each with its plan and the time now
//  3. commit them, read the clock, record lag = that reading - planned for every accepted slot
//  4. hand the interval's figures to the collector when the interval is over: two halves, no lock
//  5. nothing due: sleep to the next planned time less the guard, then spin to it; only this counts as waiting in duty
//
// In echo mode a second thread per worker polls the backend's Receiver, matches replies to slots and times them against
// planned and sent. When the plan has ended the run drains, then a collector merges everything into a stats.Result.
//
// Lag runs to the end of Commit and service time from before the stamp is written: each figure errs on the safe side.
package engine
