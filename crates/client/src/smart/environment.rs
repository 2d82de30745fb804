//! Connecting as a ticket says, which may be in a file, or as the environment says.

use std::env::VarError;
use std::path::Path;

use distkv_tls::TlsError;

use super::Client;
use super::config::ClientConfig;
use super::error::CallError;
use crate::login::read_ticket_file;
use crate::model::host_port::{CLIENT_PORT, HostPort};
use crate::rt;
use crate::{Access, Ticket};

/// Has a ticket, or `@` and the name of a file with one.
const TICKET: &str = "DISTKV_TICKET";

impl Client {
    /// Connects as a ticket says: to its nodes, by its CA, as its user, and to no other network. What the configuration
    /// says itself counts instead of that part of the ticket: its TLS (also of the ticket's client certificate), its login, its
    /// network.
    ///
    /// ```no_run
    /// use distkv_client::{Client, ClientConfig, Ticket};
    ///
    /// # async fn run(text: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let ticket: Ticket = text.parse()?;
    /// let client = Client::connect_with_ticket(&ticket, ClientConfig::new()).await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect`]; [`CallError::Usage`] if the ticket cannot be used.
    pub async fn connect_with_ticket(
        ticket: &Ticket,
        config: ClientConfig,
    ) -> Result<Client, CallError> {
        Client::connect_by(ticket, Access::of_ticket(ticket), config).await
    }

    /// The same by the ticket in a file. Where a node does not take its secret later, the file is read again: if it has another
    /// one for the same user by then, the client goes on with that ([`Access::of_ticket_file`]).
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), distkv_client::CallError> {
    /// use distkv_client::{Client, ClientConfig};
    ///
    /// let client = Client::connect_with_ticket_file("shop.ticket", ClientConfig::new()).await?;
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Client::connect_with_ticket`]; [`CallError::Usage`] if the file cannot be read, or has no ticket.
    pub async fn connect_with_ticket_file(
        file: impl AsRef<Path>,
        config: ClientConfig,
    ) -> Result<Client, CallError> {
        Client::connect_by_file("the ticket's file", file.as_ref(), config).await
    }

    /// `what`: what names the file, for an error.
    async fn connect_by_file(
        what: &str,
        file: &Path,
        config: ClientConfig,
    ) -> Result<Client, CallError> {
        let name = file.to_owned();
        let read = rt::spawn_blocking(move || read_ticket_file(name)).await;
        let ticket =
            read.map_err(|error| CallError::Usage(format!("{what}: {}: {error}", file.display())))?;
        let access = Access::of_ticket_file_for(&ticket, file, config.has_own_tls());
        Client::connect_by(&ticket, access, config).await
    }

    async fn connect_by(
        ticket: &Ticket,
        access: Result<Access, TlsError>,
        config: ClientConfig,
    ) -> Result<Client, CallError> {
        let unusable = |why: String| CallError::Usage(format!("the ticket cannot be used: {why}"));
        let seeds: Result<Vec<HostPort>, _> =
            ticket.addresses.iter().map(|address| address.parse()).collect();
        let seeds = seeds.map_err(|error| unusable(error.to_string()))?;
        let access = access.map_err(|error| unusable(error.to_string()))?;
        Client::connect(seeds, config.beside_ticket(access)).await
    }

    /// Connects as the environment's `DISTKV_TICKET` says, which has a ticket or `@FILE` with one
    /// ([`Client::connect_with_ticket_file`]); where that is not set, or empty, to 127.0.0.1 at the port that nodes have by
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
        let Some(text) = told.filter(|text| !text.is_empty()) else {
            let seed = HostPort { host: String::from("127.0.0.1"), port: CLIENT_PORT };
            return Client::connect([seed], config).await;
        };
        if let Some(file) = text.strip_prefix('@') {
            return Client::connect_by_file(TICKET, Path::new(file), config).await;
        }
        let ticket = text.parse();
        let ticket = ticket.map_err(|error| CallError::Usage(format!("{TICKET}: {error}")))?;
        Client::connect_with_ticket(&ticket, config).await
    }
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
