//go:build !distkv_planted

package distkv

// planted: no rule is broken; the compiler leaves all of it out.
const planted = ""
