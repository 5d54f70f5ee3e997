// Package stats holds what a run measured: histograms, the ledger, the timeline and the Result that carries them.
//
// Workers record into their own Recorder, without locks; everything is merged afterwards. Nothing here knows how the
// figures are judged (verdict) or shown (report).
package stats
