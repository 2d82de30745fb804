//! Connecting as the environment says, for programs that are told by it where their cluster is; and tickets in files.

use std::env::VarError;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use distkv_tls::ticket::{TICKET_BYTES_MAX, TicketError};

use super::Client;
use super::config::ClientConfig;
use super::error::CallError;
use crate::Ticket;
use crate::model::host_port::{CLIENT_PORT, HostPort};
use crate::rt;

/// Has a ticket, or `@` and the name of a file with one.
const TICKET: &str = "DISTKV_TICKET";

impl Client {
    /// Connects as the environment's `DISTKV_TICKET` says, which has a ticket or `@FILE` with one
    /// ([`Client::connect_with_ticket`]); where that is not set, or empty, to 127.0.0.1 at the port that nodes have by
    /// default, as `config` says. Only this function reads the environment.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), distkv_client::CallError> {
    /// use distkv_client::{Client, ClientConfig};
    ///
    /// let client = Client::connect_from_env(ClientConfig::new()).await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect_with_ticket`]; [`CallError::Usage`] if the text is no ticket, or its file cannot be read.
    pub async fn connect_from_env(config: ClientConfig) -> Result<Client, CallError> {
        let told = match std::env::var(TICKET) {
            Ok(text) => Some(text),
            Err(VarError::NotPresent) => None,
            // To go to another node, without a login, is not what it says.
            Err(VarError::NotUnicode(_)) => {
                return Err(CallError::Usage(format!("{TICKET} is no UTF-8")));
            }
        };
        Client::connect_as_told(told, config).await
    }

    async fn connect_as_told(
        told: Option<String>,
        config: ClientConfig,
    ) -> Result<Client, CallError> {
        match told.filter(|text| !text.is_empty()) {
            Some(text) => Client::connect_with_ticket(&ticket_of(text).await?, config).await,
            None => {
                let seed = HostPort { host: String::from("127.0.0.1"), port: CLIENT_PORT };
                Client::connect([seed], config).await
            }
        }
    }
}

/// The ticket that is this text, or is in the file that it names.
async fn ticket_of(text: String) -> Result<Ticket, CallError> {
    match text.strip_prefix('@').map(str::to_owned) {
        None => text.parse().map_err(|error| CallError::Usage(format!("{TICKET}: {error}"))),
        Some(name) => {
            rt::spawn_blocking(move || {
                read_ticket_file(&name)
                    .map_err(|error| CallError::Usage(format!("{TICKET}: {name}: {error}")))
            })
            .await
        }
    }
}

/// Reads the ticket in a file; white space around it is ignored. Of a file that is too long to be a ticket, only so
/// much is read that this is seen. It blocks.
///
/// # Errors
/// The file cannot be read; of the kind [`io::ErrorKind::InvalidData`] if what it has is no ticket.
pub fn read_ticket_file(file: impl AsRef<Path>) -> io::Result<Ticket> {
    let mut bytes = Vec::new();
    // With the end of its line, and one byte that shows that there is too much.
    File::open(file)?.take(TICKET_BYTES_MAX as u64 + 3).read_to_end(&mut bytes)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| TicketError::NoTicket);
    text.and_then(str::parse).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use distkv::model::ids::NodeName;
    use distkv::testing::{TestCluster, loopback};

    use super::*;

    #[test]
    fn a_ticket_as_text_or_in_a_file_says_where_the_nodes_are() {
        rt::block_on(async {
            let cluster = TestCluster::start(1).await.unwrap();
            let ticket = Ticket {
                addresses: cluster.seeds().iter().map(HostPort::to_string).collect(),
                network: loopback(NodeName::new("n0").unwrap(), Vec::new()).network,
                login: None,
                ca: None,
                certificate: None,
            };
            let text = ticket.to_text().unwrap();
            let file = std::env::temp_dir().join(format!("distkv-ticket-{}", std::process::id()));
            std::fs::write(&file, format!("{text}\n")).unwrap();
            for told in [text, format!("@{}", file.display())] {
                let client = Client::connect_as_told(Some(told), ClientConfig::new()).await;
                client.unwrap().close().await;
            }
            std::fs::remove_file(&file).unwrap();
            for bad in ["no ticket", "@/no/such/file", "@/dev/zero"] {
                let told = Client::connect_as_told(Some(bad.to_owned()), ClientConfig::new()).await;
                assert_eq!(told.unwrap_err().code(), Some("usage"), "{bad}");
            }
            cluster.shutdown().await;
        });
    }

    #[test]
    fn without_one_the_node_of_this_machine_is_meant() {
        let config = ClientConfig::new().connect_deadline(std::time::Duration::from_millis(1));
        for told in [None, Some(String::new())] {
            let error = rt::block_on(Client::connect_as_told(told, config.clone())).unwrap_err();
            assert_eq!(error.node(), Some("127.0.0.1:27586"), "{error}");
        }
    }
}
