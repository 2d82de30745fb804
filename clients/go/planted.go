//go:build distkv_planted

package distkv

import "os"

// planted is the rule that this build breaks: only the conformance driver is built like this, to show that the
// scenarios find it.
var planted = os.Getenv("DISTKV_PLANTED")
