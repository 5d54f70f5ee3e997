// Package packet knows what is inside a packet: headers and checksums of frames, the payload stamp by which our own two ends
// recognise a packet and its times, and the byte template for targets that know nothing of us.
//
// It is pure: it reads no clock, opens no socket and needs no privilege. Whatever is called per packet does not allocate.
package packet
