//! `ticket`: puts a ticket together, and says what is in one.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use distkv_command::given::Asked;
use distkv_command::key_file;
use distkv_command::login::typed_secret;
use distkv_command::ticket::read_ticket;
use distkv_tls::ca::CaHash;
use distkv_tls::pem::{self, PEM_BYTES_MAX};
use distkv_tls::ticket::{ClientCertificate, TEXT_BYTES_MAX};
use distkv_tls::{Login, Ticket};
use serde_json::json;

use crate::cli::data::value_input::read_input;
use crate::cli::error::CliError;
use crate::cli::files::new_file::{Existing, tidy_when_interrupted};
use crate::cli::files::ticket_file::TicketFile;
use crate::cli::remote::parse_address;
use crate::cli::terminal::output::{Output, printable};
use crate::membership::NetworkName;
use crate::rt;

/// Make a ticket, or show what is in one
///
/// A ticket is all that a program needs to use a network, in one string: where the nodes are, by which CA
/// they are known, and as whom to log in. It is a secret.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node ticket new n1.example.org n2.example.org --ca ca.pem \\
    --user joe --secret joe.secret --to joe.ticket
  distkv-node ticket show @joe.ticket
  distkv-node get site.lamp --ticket @joe.ticket

Neither connects to a node, and nothing is checked with one. Who has a ticket can do what its \
user may do: keep it as you keep a password.

Exit code: 0 done, 1 the file cannot be written, or is there already, 2 usage, or something that \
cannot be in a ticket, 8 what is in one cannot be written.")]
pub(in crate::cli) struct TicketArgs {
    #[command(subcommand)]
    what: What,

    /// Print JSON, for programs
    // Another id than that of the option that stands before commands.
    #[arg(long = "json", id = "ticket_json", global = true)]
    json: bool,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    New(Box<NewArgs>),
    Show(ShowArgs),
}

/// Put a ticket together
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node ticket new n1.example.org --key key
  distkv-node ticket new n1.example.org --ca ca.pem --to all.ticket
  distkv-node ticket new 10.0.0.1 10.0.0.2:27600 --ca ca.pem \\
    --user joe --method password --secret joe.secret
  distkv-node ticket new n1.example.org --ca ca.pem \\
    --cert joe.pem --cert-key joe.key

The file (--to) is made for its owner only (mode 0600), and whole or not at all. What a shell writes \
with `>` is for everybody whom its umask lets read it.

Without --key, --ca and --ca-hash, clients with this ticket use plain text.")]
struct NewArgs {
    /// Client ports of nodes, by names that are in their certificates; up to 16
    #[arg(value_name = "ADDR[:PORT]", required = true)]
    addresses: Vec<String>,

    /// The network's key file: its network and its CA are those of the ticket
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ca", "ca_hash"])]
    key: Option<PathBuf>,

    /// The network's name: clients use no other network's nodes [default: the key file's, or none: the
    /// network of the first node that they reach]
    #[arg(long, value_name = "NAME")]
    network: Option<String>,

    /// The CA of the nodes' certificates, which they must send along: a PEM file; of several in it, the
    /// last
    #[arg(long, value_name = "FILE", conflicts_with = "ca_hash")]
    ca: Option<PathBuf>,

    /// The same as the hash of its certificate
    #[arg(long, value_name = "sha256:HEX")]
    ca_hash: Option<CaHash>,

    /// The user to log in as
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// How the user logs in
    #[arg(long, default_value = "token", requires = "user")]
    method: String,

    /// A file with the user's password or token; - for standard input. Its last line end is not part of it
    #[arg(long, value_name = "FILE", requires = "user")]
    secret: Option<PathBuf>,

    /// A client certificate with its chain, as a PEM file
    #[arg(long, value_name = "FILE", requires = "cert_key")]
    cert: Option<PathBuf>,

    /// Its private key, as a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    cert_key: Option<PathBuf>,

    /// The file to write, for its owner only; without it, the ticket is printed
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,

    /// Replace the file if there is one
    #[arg(long, requires = "to")]
    force: bool,
}

/// Show what a ticket contains, without its secrets
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-node ticket show @joe.ticket")]
struct ShowArgs {
    /// The ticket, or @ and the name of a file with one
    #[arg(value_name = "TICKET|@FILE")]
    ticket: String,
}

pub(in crate::cli) fn run(args: TicketArgs) -> Result<(), CliError> {
    let mut output = match args.what {
        What::Show(_) => Output::of_read(args.json),
        What::New(_) => Output::new(args.json),
    };
    match args.what {
        What::New(new) => {
            let Some(to) = new.to.clone() else {
                let text = text_of(*new)?;
                output.either(|| json!({"ticket": text}), || text.clone())?;
                return output.flush();
            };
            tidy_when_interrupted(args.json)?;
            // Before anybody is asked for a secret.
            let file = TicketFile::begin(&to, Existing::of_force(new.force))?;
            file.fill(&text_of(*new)?)?;
            let place = to.display().to_string();
            output.either(
                || json!({"ticket_file": place}),
                || format!("the ticket is in {}", printable(&place)),
            )?;
        }
        What::Show(show) => {
            let ticket = read_ticket("the ticket", &show.ticket)?;
            output.either(|| shown_json(&ticket), || shown(&ticket))?;
        }
    }
    output.flush()
}

fn text_of(new: NewArgs) -> Result<String, CliError> {
    make(new)?.to_text().map_err(|error| CliError::Usage(error.to_string()))
}

fn make(new: NewArgs) -> Result<Ticket, CliError> {
    let read = |path: &Path, most| read_input(path, most).map_err(CliError::of_setting);
    let wrong =
        |path: &Path, error: pem::PemError| CliError::Usage(format!("{}: {error}", path.display()));
    let addresses: Vec<String> = new
        .addresses
        .iter()
        .map(|text| parse_address("the address", text).map(|address| address.to_string()))
        .collect::<Result<_, _>>()?;
    let of_key = match &new.key {
        None => None,
        Some(path) => {
            let file = key_file::read(path)?;
            let Some(ca) = &file.ca else {
                let text = format!(
                    "{} has no CA, so nodes have no certificates of it: give --ca, or --ca-hash",
                    path.display()
                );
                return Err(CliError::Usage(text));
            };
            Some((CaHash::of(&ca.certificate), file.ring.network().as_str().to_owned()))
        }
    };
    let ca = match &new.ca {
        _ if let Some((ca, _)) = &of_key => Some(*ca),
        Some(path) => {
            let hash = pem::ca_hash(&read(path, PEM_BYTES_MAX)?);
            Some(hash.map_err(|error| wrong(path, error))?)
        }
        None => new.ca_hash,
    };
    let secret = match &new.secret {
        Some(path) => {
            let user = new.user.as_deref().unwrap_or_default();
            let asked = Asked::Known(format!("{} of {user}", new.method));
            Some(match typed_secret(path, &asked)? {
                Some(typed) => typed,
                None => one_line(path, read(path, TEXT_BYTES_MAX + 2)?)?,
            })
        }
        None => None,
    };
    let method = new.method;
    let login = new.user.map(|user| Login { method, user, secret });
    let certificate = match (&new.cert, &new.cert_key) {
        (Some(cert), Some(key)) => {
            let (chain, key) = (read(cert, PEM_BYTES_MAX)?, read(key, PEM_BYTES_MAX)?);
            let identity = pem::identity(&chain, &key, rt::wall_clock_ms() / 1_000);
            let identity = identity.map_err(|error| wrong(cert, error))?;
            Some(ClientCertificate::from(&identity))
        }
        _ => None,
    };
    let of_key = of_key.map(|(_, network)| network);
    if let Some(network) = &new.network {
        // No node has another one, so no node would be used.
        NetworkName::new(network)
            .map_err(|error| CliError::Usage(format!("--network {network:?}: {error}")))?;
    }
    let network = new.network.or(of_key).unwrap_or_default();
    Ok(Ticket { addresses, network, login, ca, certificate })
}

/// A file's text without the end of its last line.
fn one_line(path: &Path, bytes: Vec<u8>) -> Result<String, CliError> {
    let text = String::from_utf8(bytes)
        .map_err(|_| CliError::Usage(format!("{}: a secret must be text", path.display())))?;
    let line = text
        .strip_suffix('\n')
        .map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.to_owned())
}

fn shown_json(ticket: &Ticket) -> serde_json::Value {
    let login = ticket.login.as_ref();
    json!({
        "addresses": ticket.addresses,
        "network": (!ticket.network.is_empty()).then_some(&ticket.network),
        "ca": ticket.ca.map(|hash| hash.to_string()),
        "user": login.map(|login| &login.user),
        "method": login.map(|login| &login.method),
        "secret": login.is_some_and(|login| login.secret.is_some()),
        "certificate": ticket.certificate.is_some(),
    })
}

fn shown(ticket: &Ticket) -> String {
    let login = match &ticket.login {
        Some(login) => {
            let with = if login.secret.is_some() { "a secret" } else { "no secret" };
            format!("{} (method {}, with {with})", printable(&login.user), printable(&login.method))
        }
        None => String::from("none"),
    };
    let ca = ticket.ca.map_or_else(|| String::from("none: plain text"), |hash| hash.to_string());
    let certificate = if ticket.certificate.is_some() { "yes" } else { "no" };
    let nodes: Vec<_> = ticket.addresses.iter().map(|address| printable(address)).collect();
    format!(
        "nodes        {}\nnetwork      {}\nCA           {ca}\nuser         {login}\ncertificate  {certificate}",
        nodes.join(", "),
        if ticket.network.is_empty() { "not named".into() } else { printable(&ticket.network) }
    )
}
