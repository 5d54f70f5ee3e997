package sys

// OnFirmStack runs fn on this goroutine, with a stack that does not move meanwhile: there is room for some 60 KB more of it.
//
// It is for libraries that hand the address of a local variable to the kernel as a number, through a function call (as
// safchain/ethtool does). The number does not follow when the runtime moves a stack that has to grow: the kernel then fills the old place, and
// the library returns zeros without an error. First the stack is made large; then a large frame stays on it, because the
// garbage collector halves a stack of which less than a quarter is in use (runtime/stack.go, shrinkstack).
func OnFirmStack(fn func()) {
	makeRoom()
	holdRoom(fn)
}

//go:noinline
func makeRoom() byte {
	var room [100 << 10]byte
	return touch(room[:])
}

//go:noinline
func holdRoom(fn func()) byte {
	var room [40 << 10]byte
	b := touch(room[:])
	fn()
	return b + touch(room[:])
}

// touch keeps the compiler from leaving the memory out.
//
//go:noinline
func touch(b []byte) byte {
	b[0]++
	return b[len(b)-1]
}
