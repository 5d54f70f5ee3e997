// Package calib measures what this machine can send, against a sink that does nothing, and keeps what it found, so that later runs
// can be judged against it.
//
// A calibration is a table: a row for every send path, payload and number of workers. A row is made in three parts:
//
//	flat out   no plan, as fast as the kernel accepts: what a packet costs
//	search     paced trials, each judged like any run, for the highest rate that ends VALID
//	rounds     that rate again, three times; where most of them are not VALID, a lower one
//
// The time of the whole calibration is fixed and shared out over the rows. Rates are found to a few percent and err on the low
// side: a run a little below a ceiling must be VALID on another, noisier day.
//
// Against the sink on loopback the figures are those of the software path: no NIC, no wire, and the sender's own core also carries
// each packet to the receiving socket. Packets that the sink drops are the sink's losses and limit nothing; they are counted.
//
// Linux only; it needs the privilege of the send paths that it measures and none of its own. Run changes the process's garbage
// collector and GOMAXPROCS while it runs: one calibration at a time.
package calib
