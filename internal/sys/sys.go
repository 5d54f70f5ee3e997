// Package sys is the only package with raw system calls and kernel structures; unsafe is allowed here and in internal/ring.
//
// Functions are thin: they return what the kernel said as a syscall.Errno or an *os.SyscallError and decide nothing.
package sys
