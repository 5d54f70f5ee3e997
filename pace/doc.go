// Package pace turns a rate or a profile into a schedule: the planned send time of every packet of a run, fixed before the run
// starts and independent of replies. It is pure integer arithmetic: it reads no clock, never sleeps, opens no file, needs no
// privilege and runs on any platform.
//
// # Symbols
//
//	i    slot index, 0, 1, 2 ...; one planned send
//	t    time since the start of the run, whole nanoseconds
//	L    length of the plan (Schedule.Length), ns
//	P    packets per period of a rate (Rate.Packets)
//	T    period of a rate, ns (Rate.Per); the rate is P/T packets per ns, at most 1
//	N(t) packets a perfect sender has begun by time t: the integral of the rate, a real number
//
// One rule covers every profile that has a rate: slot i is due at the first whole nanosecond t with N(t) >= i, so slot 0 is due
// at 0, nothing is early, and rounding up is the only rounding there is. A plan holds the slots due before L:
//
//	At(i)   = min { t : N(t) >= i }
//	Due(t)  = floor(N(t)) + 1, at most Slots
//	Slots   = floor(N(L-1)) + 1
//
// Slots equals N(L) when that is whole (50 000/s for 30 s is 1 500 000), else ceil(N(L)), less one in the rare case that the last slot
// falls inside the last nanosecond and would have been rounded up onto L itself. A ramp that has come to rest at 0 has floor(N(L)) + 1.
//
// # Profiles
//
//	constant  N(t) = t P/T                         At(i) = ceil(i T/P)
//	step      N(t) = N(s) + (t-s) P/T              s: start of the level, ns; the rate rises by a fixed amount at every level
//	ramp      N(t) = r0 t + (r1-r0) t^2 / (2 D)    r0, r1: first and last rate, packets per ns; D: time from r0 to r1, ns;
//	                                               after D the rate stays r1
//	burst     At(i) = floor(i/n) gap               n: packets per burst
//	tick      At(i) = ceil(floor(i/s) T/P)         s: sessions; P/T: ticks per ns; slot i is session i mod s
//	poisson   a Poisson process of the given rate: gaps are independent and exponential with mean T/P ns
//	recorded  At(i) = given time i less the first given time
//
// Products are 128 bits wide (192 for the ramp), so no rate from one packet per hour to 10^9 per second drifts or overflows within
// 2^62 ns (146 years). No gap is ever rounded and multiplied up.
//
// # Walking
//
// A Cursor walks one worker's share of a schedule without allocation and, for constant, step, burst and tick profiles, without
// division: it carries quotient and remainder. A Segment states the same numbers for an engine that runs somewhere else, such as
// a program in the kernel.
package pace
