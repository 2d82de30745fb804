package distkv

// Deviations, one rule broken each, that the conformance scenarios must find; the names are those of
// clients/conformance/deviations.toml. They exist in builds with the tag distkv_planted only.
const (
	plantUnguarded     = "a write that may have been made is made again"
	plantNoIDs         = "no write has an id"
	plantRank          = "each try has another order of nodes"
	plantNotReady      = "a node that is not ready is believed"
	plantElsewhere     = "unknown fate is asked elsewhere"
	plantOwnWrites     = "own writes are not looked for"
	plantSilentRestart = "a watch starts over in silence"
	plantNeverMaybe    = "another node's write is not told as perhaps repeated"
	plantMajority      = "one node is a majority"
	plantBatch         = "a passing error in a batch is final"
	plantAgain         = "what was delivered is delivered again"
	plantOld           = "old servers are trusted with ids"
	plantTooSlow       = "a watch that its node gives up has ended"
	plantNotStopped    = "a stream that is left goes on"
	plantOwnOrder      = "a write does not say what the client knows"
	plantNotGivenUp    = "a write does not say what is given up"
	plantNotTimed      = "a try does not say until when it counts"
	plantSlowLine      = "what has to be sent takes no longer"
	plantArriving      = "what is still arriving is cut off"
	plantNotApart      = "a write with a condition goes elsewhere than the read"
)
