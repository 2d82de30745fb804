//! Where `bench` writes on a node: below a path of its own, which is deleted again whatever happens,
//! unless it is to stay.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::{Access, Connection, Fields, HostPort, Options};
use crate::command::error::{CliError, Outcome};
use crate::command::output::typed;
use crate::command::say;
use crate::command::signals::on_ends;
use crate::model::path::Path;
use crate::rt;

/// The first element of all paths that are written.
pub const PLACE: &str = "distkv-bench";

/// The node on which it writes, and how that is reached.
pub struct At {
    /// One of its addresses.
    pub node: SocketAddr,
    /// Its name or address, as it was given.
    pub to: HostPort,
    /// Whether by TLS, and as whom.
    pub access: Access,
    /// How long connecting may take.
    pub timeout: Duration,
}

impl At {
    /// In plain text.
    #[must_use]
    pub fn plain(node: SocketAddr, timeout: Duration) -> Self {
        Self { node, to: HostPort::from(node), access: Access::default(), timeout }
    }
}

/// Whether SIGINT or SIGTERM came. Only one measurement runs in a process.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the load is to end now.
pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Nothing more is to be measured after a signal.
///
/// # Errors
/// [`CliError::Interrupted`].
pub fn check_interrupted() -> Result<(), CliError> {
    if is_interrupted() { Err(CliError::INTERRUPTED) } else { Ok(()) }
}

/// The path below which all is written.
///
/// # Errors
/// [`CliError::Failure`] if the name could not be a path: never.
pub fn place() -> Result<Path, CliError> {
    PLACE.parse().map_err(|error| CliError::Failure(format!("{PLACE}: {error}")))
}

/// Makes a measurement that writes to a node, and deletes what it wrote there: also after an error and
/// after SIGINT or SIGTERM, which only end the load. A second one ends the process at once.
///
/// # Errors
/// That of the measurement; [`CliError::Interrupted`]; or that of deleting.
pub fn tidily(
    at: &At,
    keep: bool,
    measure: impl FnOnce() -> Result<(), CliError>,
) -> Result<(), CliError> {
    // Where nothing can be written, there is nothing to delete, either. The node says what is missing, a login say.
    let by_hand = by_hand(at);
    rt::block_on(look(at))?;
    if keep {
        say::note(&format!("this writes below {PLACE}; {by_hand} deletes that"));
        return measure();
    }
    say::note(&format!("this writes below {PLACE}, and deletes that again"));
    let how = by_hand.clone();
    on_ends(move |_| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            let left = format!("some of {PLACE} may still be there; {how} deletes it");
            std::process::exit(i32::from(CliError::Interrupted(left).tell(say::is_json())));
        }
    })?;
    let measured = measure();
    let deleted = rt::block_on(delete(at)).map_err(|error| {
        CliError::Failure(format!("cannot delete {PLACE}: {error}; {by_hand} deletes it"))
    });
    match (measured, is_interrupted()) {
        (_, true) => {
            deleted?;
            say::note(&format!("interrupted; {PLACE} is deleted"));
            Err(CliError::INTERRUPTED)
        }
        (Ok(()), false) => deleted,
        // The first error says more.
        (Err(error), false) => {
            if let Err(CliError::Failure(text)) = deleted {
                say::note(&text);
            }
            Err(error)
        }
    }
}

/// What an operator types to delete it.
fn by_hand(at: &At) -> String {
    typed::command_at(&at.to.to_string(), "delete", &[PLACE], &["--recursive"])
}

async fn connect(at: &At) -> Result<Connection, CliError> {
    let options = Options {
        connect_timeout: at.timeout,
        window: None,
        nowait: true,
        access: at.access.clone(),
    };
    Ok(Connection::connect(&at.to, options).await?)
}

/// Asks for something, as the load does.
async fn look(at: &At) -> Result<(), CliError> {
    let place = place()?;
    let asked = async {
        connect(at).await?.request("get_value", &Fields::at(&place)).await?;
        Ok(())
    };
    let silent = || CliError::Request {
        outcome: Outcome::Unreachable,
        code: None,
        text: format!("{} did not answer in {:?} (--timeout)", at.to, at.timeout),
    };
    rt::timeout(at.timeout, asked).await.ok_or_else(silent)?
}

/// Deletes all that is there. How long that takes depends on how much it is.
async fn delete(at: &At) -> Result<(), CliError> {
    connect(at).await?.request("delete_tree", &Fields::at(&place()?)).await?;
    Ok(())
}
