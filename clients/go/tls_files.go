package distkv

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// tlsFiles is what sessions are made with, where that comes from files: they may get another certificate while the client runs.
// Before each new connection the client looks whether they have changed, and only then reads them again. Connections that are
// open stay as they are.
type tlsFiles struct {
	names []string // none: nothing is read again
	read  func() (*tls.Config, error)
	log   *slog.Logger

	mu      sync.Mutex // Who reads the files holds it, so that the others get the same.
	config  *tls.Config
	seen    []fs.FileInfo // as they were when they were read last; nil: they are not looked at again
	trouble string        // why what they have now is not used; "": it is
}

// readTLS reads the files of these names for the first time: all of them together, by `read`.
func readTLS(names []string, log *slog.Logger, read func() (*tls.Config, error)) (*tlsFiles, error) {
	f := &tlsFiles{names: names, read: read, log: log}
	f.seen = f.look() // Before they are read: what is written meanwhile is seen next time.
	config, err := read()
	f.config = config
	return f, err
}

// now is what the next session is made with, and why that is not what the files have. They are used together or not at all: a
// certificate whose key is not there yet is not.
func (f *tlsFiles) now() (*tls.Config, string) {
	config, trouble, tell := f.renewed()
	tell() // Without the lock: a program may log to its own network.
	return config, trouble
}

func (f *tlsFiles) renewed() (config *tls.Config, trouble string, tell func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tell = func() {}
	found := f.look()
	if f.seen == nil || found == nil || slices.EqualFunc(found, f.seen, isUnchanged) {
		return f.config, f.trouble, tell
	}
	config, err := f.read()
	if err == nil {
		f.config, f.seen, f.trouble = config, found, ""
		return f.config, "", func() {
			f.log.Info("distkv: the files for TLS have changed, and are used for new connections from now on")
		}
	}
	if !errors.As(err, new(*fs.PathError)) { // Else it may go better next time, though nothing in them changes.
		f.seen = found
	}
	if before := f.trouble; before != err.Error() {
		f.trouble = err.Error()
		tell = func() {
			f.log.Warn("distkv: the files for TLS have changed, and cannot be used; what they had before is used on", "error", err.Error())
		}
	}
	return f.config, f.trouble, tell
}

// look is what there is of the files; nil: one is gone, or is no plain file. Nobody may write into a pipe any more.
func (f *tlsFiles) look() []fs.FileInfo {
	found := make([]fs.FileInfo, len(f.names))
	for i, name := range f.names {
		var err error
		if found[i], err = os.Stat(name); err != nil || !found[i].Mode().IsRegular() {
			return nil
		}
	}
	return found
}

func isUnchanged(one, other fs.FileInfo) bool {
	return os.SameFile(one, other) && one.Size() == other.Size() && one.ModTime().Equal(other.ModTime())
}

// wholeName is the name of a file that is found also when the program has changed its working directory; "" is none.
func wholeName(file string) string {
	if whole, err := filepath.Abs(file); file != "" && err == nil {
		return whole
	}
	return file
}
