//! Opens a node's ports. Peers find TCP (links) and UDP (SWIM) at the same number.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::node::error::NodeError;
use crate::node::membership::address::{parse_setting, resolve_setting};
use crate::rt::TcpListener;

/// How many times to look for a port that is free for both TCP and UDP. An attempt fails only if
/// another process has just that UDP port.
const FREE_PORT_ATTEMPTS: usize = 64;

/// The gossip port.
pub(in crate::node) struct GossipSockets {
    pub(in crate::node) tcp: TcpListener,
    pub(in crate::node) udp: UdpSocket,
    /// With the port that was taken.
    pub(in crate::node) addr: SocketAddr,
    /// It is an IPv6 port at which IPv4 does not come in, as some systems have it.
    pub(in crate::node) v6_only: bool,
}

/// Opens the gossip port.
///
/// # Errors
/// [`NodeError`] says which address failed and why.
pub(in crate::node) async fn bind_gossip(
    text: &str,
    port: u16,
) -> Result<GossipSockets, NodeError> {
    const WHAT: &str = "gossip";
    let address = parse_setting(WHAT, text, port)?;
    let addrs = resolve_setting(WHAT, &address).await?;
    first_that_works(WHAT, &addrs, |addr| {
        let mut attempts = FREE_PORT_ATTEMPTS;
        loop {
            let tcp = std::net::TcpListener::bind(addr)?;
            let bound = tcp.local_addr()?;
            match UdpSocket::bind(bound) {
                Ok(udp) => {
                    let tcp = TcpListener::of(tcp)?;
                    let socket = socket2::SockRef::from(&udp);
                    let v6_only = bound.is_ipv6() && socket.only_v6().unwrap_or(false);
                    return Ok(GossipSockets { tcp, udp, addr: bound, v6_only });
                }
                Err(error) => {
                    attempts -= 1;
                    let taken = error.kind() == io::ErrorKind::AddrInUse;
                    if addr.port() != 0 || !taken || attempts == 0 {
                        return Err(error);
                    }
                }
            }
        }
    })
}

/// Opens the client port.
///
/// # Errors
/// [`NodeError`] says which address failed and why.
pub(in crate::node) async fn bind_client(
    text: &str,
    port: u16,
) -> Result<(TcpListener, SocketAddr), NodeError> {
    bind_tcp("client", text, port).await
}

/// Opens the HTTP port.
///
/// # Errors
/// [`NodeError`] says which address failed and why.
pub(in crate::node) async fn bind_http(
    text: &str,
    port: u16,
) -> Result<(TcpListener, SocketAddr), NodeError> {
    bind_tcp("http", text, port).await
}

async fn bind_tcp(
    what: &'static str,
    text: &str,
    port: u16,
) -> Result<(TcpListener, SocketAddr), NodeError> {
    let address = parse_setting(what, text, port)?;
    let addrs = resolve_setting(what, &address).await?;
    first_that_works(what, &addrs, |addr| {
        let listener = std::net::TcpListener::bind(addr)?;
        let bound = listener.local_addr()?;
        Ok((TcpListener::of(listener)?, bound))
    })
}

/// A host name may have addresses that are not this machine's, or not enabled on it.
fn first_that_works<T>(
    what: &'static str,
    addrs: &[SocketAddr],
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, NodeError> {
    let mut failed = None;
    for addr in addrs.iter().copied() {
        match bind(addr) {
            Ok(bound) => return Ok(bound),
            Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
                return Err(NodeError::InUse { what, addr });
            }
            Err(source) => failed.get_or_insert(NodeError::Bind { what, addr, source }),
        };
    }
    // `resolve` never gives an empty list.
    Err(failed.unwrap_or(NodeError::System {
        what: "an address",
        source: io::ErrorKind::AddrNotAvailable.into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt;

    #[test]
    fn both_protocols_get_the_same_free_port() {
        let sockets = rt::block_on(bind_gossip("127.0.0.1:0", 1)).unwrap();
        assert_ne!(sockets.addr.port(), 0);
        assert_eq!(sockets.udp.local_addr().unwrap(), sockets.addr);
        let taken = rt::block_on(bind_gossip(&sockets.addr.to_string(), 1));
        let Err(error) = taken else { panic!("bound twice") };
        assert!(error.to_string().contains("in use by another program"), "{error}");
    }

    #[test]
    fn a_port_that_only_udp_lacks_is_in_use_too() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = udp.local_addr().unwrap();
        let taken = rt::block_on(bind_gossip(&addr.to_string(), 1));
        assert!(matches!(taken, Err(NodeError::InUse { .. })));
    }

    #[test]
    fn addresses_that_cannot_be_bound_say_so() {
        let foreign = rt::block_on(bind_client("192.0.2.1:0", 1));
        assert!(matches!(foreign, Err(NodeError::Bind { what: "client", .. })));
        for (text, all) in [("192.0.2.1:5", "0.0.0.0"), ("[2001:db8::1]:5", "[::]")] {
            let source = io::ErrorKind::AddrNotAvailable.into();
            let error = NodeError::Bind { what: "client", addr: text.parse().unwrap(), source };
            let advice = format!("give an address of this machine, or {all} for all that it has");
            assert!(error.to_string().ends_with(&advice), "{error}");
        }
        let unknown = rt::block_on(bind_client("no-such-host.invalid:0", 1));
        assert!(matches!(unknown, Err(NodeError::Resolve { .. })));
        let nonsense = rt::block_on(bind_client("nonsense:port", 1));
        assert!(matches!(nonsense, Err(NodeError::Address { .. })));
    }
}
