// Package xdplive is the adapter between the offload contract and the in-kernel engine of package xdp/live: it finds next hops, builds
// the frames of the flows, keeps their source ports, and turns the engine's books into the contract's.
//
// It sends what can be written down before the run: our stamp, or a constant payload. Payloads that need code of ours per packet
// (templates with varied fields, sessions, recordings with sizes) are for the other backends.
//
// It needs Linux 5.18 with BPF, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON, and an interface whose driver has ndo_xdp_xmit.
package xdplive
