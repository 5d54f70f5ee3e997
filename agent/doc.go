// Package agent tells a load generator about the host of its target: how busy each core is, what the kernel's UDP and interface counters
// say, what time it has; and it offers a no-op echo of UDP to compare with. It is one small HTTP server (Server) and who asks it (Client);
// Exporter asks a node_exporter for as much of it as that knows.
//
// The server only reads, answers only peers inside its allow list, and needs no privilege. It needs Linux with /proc mounted.
package agent
