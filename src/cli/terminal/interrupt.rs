//! Ctrl-C while a command is at work: it stops at the next good place, and says what is done and what is not.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::pin::pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distkv_command::signals::on_ends;
use event_listener::Event;
use futures::future::{Either, select};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::standard_input;
use crate::cli::error::CliError;
use crate::cli::files::cannot;
use crate::cli::files::read::name_of;
use crate::cli::say;
use crate::rt;

/// How often one that waits for input looks whether it was interrupted.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How long what was asked may still be answered after that.
const GRACE: Duration = Duration::from_secs(2);

/// Whether somebody has pressed Ctrl-C, or ends the command otherwise. The second time ends the process at once.
#[derive(Clone, Default)]
pub(in crate::cli) struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    is_requested: AtomicBool,
    requested: Event,
    /// What the requests that are under way may have done, if the command knows.
    in_doubt: Mutex<Option<String>>,
}

impl State {
    /// False if it was requested before.
    fn request(&self) -> bool {
        let is_first = !self.is_requested.swap(true, Ordering::AcqRel);
        self.requested.notify(usize::MAX);
        is_first
    }
}

impl Interrupt {
    /// From now on.
    ///
    /// # Errors
    /// The system has no room for it.
    pub(in crate::cli) fn heed() -> Result<Self, CliError> {
        let interrupt = Self::default();
        let state = Arc::clone(&interrupt.0);
        on_ends(move |_| {
            if !state.request() {
                let known = state.in_doubt.lock().clone();
                let what = known.as_deref().unwrap_or("what was under way may have been done");
                let error = CliError::INTERRUPTED.left(&format!("ended at once, so {what}"));
                process::exit(i32::from(error.tell(say::is_json())));
            }
        })?;
        Ok(interrupt)
    }

    /// As the signal does.
    #[cfg(test)]
    pub(in crate::cli) fn request(&self) {
        let _is_first = self.0.request();
    }

    /// # Errors
    /// [`CliError::Interrupted`]: it was.
    pub(in crate::cli) fn check(&self) -> Result<(), CliError> {
        match self.0.is_requested.load(Ordering::Acquire) {
            true => Err(CliError::INTERRUPTED),
            false => Ok(()),
        }
    }

    /// Ends when it is interrupted.
    pub(in crate::cli) async fn requested(&self) {
        let requested = self.0.requested.listen();
        if self.check().is_ok() {
            requested.await;
        }
    }

    /// Does this, unless it is interrupted: for work that changes nothing, or that a node does to its end all the same, of
    /// which the caller says so.
    ///
    /// # Errors
    /// [`CliError::Interrupted`]; or that of the work.
    pub(in crate::cli) async fn or<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let requested = self.0.requested.listen();
        self.check()?;
        match select(pin!(work), requested).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(CliError::INTERRUPTED),
        }
    }

    /// The same for what comes before a change, such as connecting: an interrupt that came while it ended counts, too.
    ///
    /// # Errors
    /// [`CliError::Interrupted`]; or that of the work.
    pub(in crate::cli) async fn or_before<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let done = self.or(work).await?;
        self.check()?;
        Ok(done)
    }

    /// Does this, which stops by itself at a good place once it is interrupted; where it waits for a node that is silent,
    /// it is given up.
    ///
    /// # Errors
    /// [`CliError::Interrupted`]: it was given up, and says so; or that of the work.
    pub(in crate::cli) async fn soon<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let is_late = async {
            self.requested().await;
            rt::sleep(GRACE).await;
        };
        match select(pin!(work), pin!(is_late)).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => {
                let known = self.0.in_doubt.lock().clone();
                let what = known.as_deref().unwrap_or("what it was asked last may have been done");
                Err(CliError::INTERRUPTED.left(&format!("the node did not answer: {what}")))
            }
        }
    }

    /// Does this. If the command is ended meanwhile, it tells what may have been done: `what`, a sentence without an end.
    pub(in crate::cli) async fn in_doubt<T>(
        &self,
        what: String,
        work: impl Future<Output = T>,
    ) -> T {
        *self.0.in_doubt.lock() = Some(what);
        let done = work.await;
        *self.0.in_doubt.lock() = None;
        done
    }

    /// A file, or standard input for `-`, whose reading ends with an error when it is interrupted ([`Self::outweighs`]),
    /// and its length. A named pipe is waited for when it is read, and not when it is opened: that could not be interrupted.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(in crate::cli) fn open(&self, path: &Path) -> Result<(impl Read + use<>, u64), CliError> {
        let open = || {
            if path == Path::new("-") {
                let stdin = standard_input::open()?;
                return Ok((File::from(stdin.as_fd().try_clone_to_owned()?), 0));
            }
            standard_input::take(path)?;
            let now = OFlags::NONBLOCK.bits().cast_signed();
            let file = OpenOptions::new().read(true).custom_flags(now).open(path)?;
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        };
        let opened: io::Result<_> = open();
        let (file, bytes) = opened.map_err(|error| match path == Path::new("-") {
            true => CliError::Failure(format!("cannot read {}: {error}", name_of(path))),
            false => cannot("open", path, error),
        })?;
        Ok((Interruptible { file, interrupt: self.clone() }, bytes))
    }

    /// The same error; or, if it was interrupted, that: then input that was being waited for has ended with another error.
    pub(in crate::cli) fn outweighs(&self, error: CliError) -> CliError {
        match error {
            CliError::Interrupted(_) => error,
            error => self.check().err().unwrap_or(error),
        }
    }
}

/// Input without a buffer, so that what has come is seen at once.
struct Interruptible {
    file: File,
    interrupt: Interrupt,
}

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.interrupt.check().map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&LOOK)) {
                Ok(0) => {}
                Err(error) if error == rustix::io::Errno::INTR => {}
                // A file that cannot be waited for is read.
                Ok(_) | Err(_) => match self.file.read(buffer) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read,
                },
            }
        }
    }
}
