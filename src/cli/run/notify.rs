//! Tells the service manager how the node is: the protocol of `sd_notify`, over the socket that `NOTIFY_SOCKET` names.
//!
//! READY comes when the ports are open and the node has read its own data: others can reach it then. It does not wait
//! for other nodes, so a whole network can be started at once. `WATCHDOG=1` goes out only while `/livez` would say
//! that the process works.

use std::convert::Infallible;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use crate::node::Node;
use crate::rt;

/// How often the state is told where there is no watchdog.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);
/// Within the time after which the watchdog bites, it is told so often that all is well.
const WATCHDOG_TIMES: u32 = 3;
/// A watchdog is told at most this often, whatever it asks for.
const WATCHDOG_INTERVAL_MIN: Duration = Duration::from_millis(10);
/// While a node reads its data, the start may take this much longer from each notice on.
const EXTEND: Duration = Duration::from_secs(30);
/// The time between two such notices.
const EXTEND_INTERVAL: Duration = Duration::from_secs(5);

/// The way to the service manager; silent where there is none.
pub(super) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// How often the watchdog is told, if there is one.
    watchdog: Option<Duration>,
}

impl Notify {
    /// What the environment of this process asks for.
    pub(super) fn of_environment() -> Self {
        let place = env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty());
        let to = place.and_then(|place| {
            let opened = open(&place);
            opened
                .inspect_err(|error| tracing::warn!("NOTIFY_SOCKET {}: {error}", place.display()))
                .ok()
        });
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
        let after = number("WATCHDOG_USEC").filter(|after| is_meant && *after > 0);
        let often = |after| Duration::from_micros(after) / WATCHDOG_TIMES;
        let watchdog = after.map(|after| often(after).max(WATCHDOG_INTERVAL_MIN));
        Self { to, watchdog }
    }

    /// Tells it; if nobody takes it, nothing happens.
    fn say(&self, text: &str) {
        if let Some((socket, address)) = &self.to
            && let Err(error) = socket.send_to_addr(text.as_bytes(), address)
        {
            tracing::debug!("the service manager was not told {text:?}: {error}");
        }
    }

    /// Says that a start goes on, until it is done.
    pub(super) async fn reading(&self) -> Infallible {
        loop {
            let extend = EXTEND.as_micros();
            self.say(&format!("EXTEND_TIMEOUT_USEC={extend}\nSTATUS=reading the data directory"));
            rt::sleep(EXTEND_INTERVAL).await;
        }
    }

    /// Says that the node can be reached.
    pub(super) fn ready(&self, node: &Node) {
        self.say(&format!("READY=1\nSTATUS={}", node.state_text()));
    }

    /// Says that the node ends.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=leaving the network");
    }

    /// Says how the node is, and that it works, as long as it does.
    pub(super) async fn follow(&self, node: &Node) -> Infallible {
        if self.to.is_none() {
            return std::future::pending().await;
        }
        let (mut told, mut was_well) = (String::new(), true);
        loop {
            let (state, fault) = (node.state_text(), node.standing_still());
            if state != told {
                self.say(&format!("STATUS={state}"));
                told = state;
            }
            if let Some(fault) = fault.as_ref().filter(|_| was_well) {
                tracing::error!("{fault}: the watchdog is not told that all is well");
            }
            was_well = fault.is_none();
            if self.watchdog.is_some() && was_well {
                self.say("WATCHDOG=1");
            }
            rt::sleep(self.watchdog.unwrap_or(STATUS_INTERVAL).min(STATUS_INTERVAL)).await;
        }
    }
}

/// A socket, and where it is to send: a path, or behind an `@` the name of an abstract socket.
fn open(place: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match place.as_bytes().split_first() {
        Some((b'@', name)) => of_abstract_name(name)?,
        _ => SocketAddr::from_pathname(place)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not hold up the node.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(target_os = "linux")]
fn of_abstract_name(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn of_abstract_name(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
