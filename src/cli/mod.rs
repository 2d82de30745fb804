//! The command line: starting nodes, and using and looking after those that run.
//!
//! One file or folder per command: those on data in `data`, those on nodes and their network in
//! `cluster`, on users and access lists in `access`, those that start nodes in `run`; `snapshot`, `log` and `key` have folders of their own.
//! `files` has the files that hold a state, `terminal` what shows progress and reads times. What all commands
//! against a running node share is the crate `distkv-command`.

mod access;
mod bench;
mod cluster;
mod completions;
mod data;
mod files;
mod key;
mod log;
mod open_files;
mod other_words;
mod run;
mod snapshot;
mod terminal;
mod types;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use distkv_command::output::typed;
use distkv_command::signals::{Kept, survive_file_limit};
use distkv_command::{error, following, remote, say, signals};

use crate::rt;
use error::{CliError, EXIT_OK};
use remote::RemoteArgs;

/// What `-h` ends with.
macro_rules! help {
    () => {
        "\
Begin with:
  distkv-node demo  # three nodes in one process

Or on three machines, each with a copy of the key file:
  distkv-node key new --network plant --to key
  distkv-node run  --key key --name n1 --gossip 0.0.0.0:27587
  distkv-node join --key key --name n2 --gossip 0.0.0.0:27587 n1.example.org
  distkv-node join --key key --name n3 --gossip 0.0.0.0:27587 n1.example.org

Then, on any of them:
  distkv-node set site.lamp '{\"on\": true}'
  distkv-node get site.lamp
  distkv-node watch site

`distkv-node COMMAND --help` has examples for each command."
    };
}

/// What `--help` ends with.
const LONG_HELP: &str = concat!(
    help!(),
    "

Paths:
  Elements are joined by dots: a.b.c. An element that is not a string starts
  with a colon: a:1.b is \"a\", 1, \"b\". `:x1f` and `:b101` are integers in
  hexadecimal and binary, `:1:.5` and `:inf` floats, `:t` and `:f` true and
  false; `:e` is the empty string, `:vabc` a byte string, `:y616263` the same
  in hexadecimal. Within a string, `:.` is a dot, `::` a colon, `:_` a space,
  `:u0009` the character of that number (four hexadecimal digits; up to six in
  braces: `:u{e0041}`): so commands print control characters and others that
  nobody sees, and what they print can be typed. With --json, paths have the
  characters themselves.
  `:'x',1` is the array (\"x\", 1), `:('x',)` an array of one item; quote them
  for the shell. `:` alone is the root; the subtree `:n` belongs to the system.
  A path has at most 64 elements, and 4096 bytes as MessagePack.

Values:
  JSON; a string needs quotes, or --string. What JSON cannot express is a map
  with one key: {\"$bin\": BASE64}, {\"$ext\": [TYPE, BASE64]},
  {\"$map\": [[KEY, VALUE], …]}, {\"$float\": \"nan\"}, {\"$int\": \"0x…\"},
  {\"$path\": PATH}. --msgpack takes MessagePack bytes from a file, --raw-file
  a byte string. A value has at most 4194304 bytes as MessagePack, so a string
  or byte string at most 4194299. With --json, integers past 2^53 - 1 are
  printed as text, since programs round them:
  {\"$int\": \"9007199254740993\"}; both forms are taken.

Environment:
  DISTKV_CONNECT  the node that commands talk to, as --connect
  DISTKV_USER, DISTKV_SECRET_FILE  who they log in as, as --user, --secret-file
  DISTKV_SECRET   that user's password or token
  DISTKV_PLAINTEXT_LOGIN  1: it may be sent in plain text, as --plaintext-login
  DISTKV_KEY      the network's key file, as --key: whoever has it is an admin
  DISTKV_NODE_CA  the CA of the nodes' own certificates, as --node-ca
  DISTKV_TICKET   where the nodes are, and who you are, as --ticket
  DISTKV_LOG      the log level of nodes, as --log
  NO_COLOR        if not empty (or if TERM is dumb), logs have no colors

Exit codes:
  0  done
  1  failed, or a file to work on cannot be read or written; also: `get` found
     no value, `status` is not ready, `wait` timed out, `verify` or `snapshot
     diff` found a difference
  2  usage: an option, path or value is not valid; or a configuration, key,
     certificate, ticket or secret file is not valid or cannot be read; of
     `run`, `join` and `start`: any file or directory that an option names is
     not there, not to be used by this user, or something else
  3  refused: by a node, because of rights, a limit or the value itself; of
     `run`, `join` and `start`: by the network, until something is changed; the
     name is taken, or all peers are of another network
  4  `run`, `join`, `start`, `demo`: the node has found a defect of its own and
     ended at once; restart it, and report what it has printed
  5  a precondition does not hold (--if-new, --if-value, --chain): nothing was
     changed
  6  no node was reached, or none that was is ready, or the login has to wait:
     nothing was done; also: a command that only reads got no answer, or not
     all of it; or `verify` found that a node still lacks changes: ask later
  7  the answer did not come: it may have been done; look before you repeat it
  8  what a command that only reads (`get`, `status`, `verify`, `diff` and so
     on), or `config check`, has found cannot be written to standard output
  130  `bench`, `edit`, `import`, `apply`, `diff`, `undo`, `cp`, `mv`,
     `verify`, `log replay`, `snapshot save`, `snapshot restore`, `snapshot
     convert` or `user ticket` was interrupted
  With --json, an error is a line of JSON on standard error: {\"error\": TEXT,
  \"outcome\": WORD, \"code\": the node's word or null, \"exit_code\": NUMBER}.
  It has \"tip\": TEXT, too, where the text for people has a tip: what may be
  meant. What else a command says there is {\"note\": TEXT} or
  {\"warning\": TEXT}."
);

/// A masterless, gossip-replicated, in-memory key-value node
///
/// Every node holds all data and answers reads from memory. Every node accepts writes, also during
/// a network partition. Changes spread by gossip; there is no leader. It speaks the DistKV client
/// protocol.
#[derive(Debug, Parser)]
#[command(
    name = "distkv-node",
    version,
    arg_required_else_help = true,
    after_help = help!(),
    after_long_help = LONG_HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// These may also stand before the command.
    #[command(flatten)]
    before: RemoteArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::node_args::RunArgs),
    Join(run::node_args::JoinArgs),
    Start(run::start::StartArgs),
    Config(run::check::ConfigArgs),
    Demo(run::demo::DemoArgs),
    Get(data::get::GetArgs),
    #[command(alias = "put")]
    Set(data::set::SetArgs),
    #[command(aliases = ["rm", "del"])]
    Delete(data::delete::DeleteArgs),
    Tree(data::trees::tree::TreeArgs),
    Ls(data::trees::ls::LsArgs),
    Diff(data::trees::apply::DiffArgs),
    Apply(data::trees::apply::ApplyArgs),
    Undo(data::trees::undo::UndoArgs),
    History(data::history::HistoryArgs),
    Edit(data::edit::EditArgs),
    Cp(data::trees::copy::CpArgs),
    Mv(data::trees::copy::MvArgs),
    Watch(data::watch::WatchArgs),
    Send(data::send::SendArgs),
    Monitor(data::monitor::MonitorArgs),
    Status(cluster::status::StatusArgs),
    Members(cluster::members::MembersArgs),
    Clients(cluster::clients::ClientsArgs),
    Top(cluster::top::TopArgs),
    Conflicts(cluster::conflicts::ConflictsArgs),
    Shards(cluster::shards::ShardsArgs),
    Verify(cluster::verify::VerifyArgs),
    State(cluster::state::StateArgs),
    Wait(cluster::wait::WaitArgs),
    Snapshot(snapshot::SnapshotArgs),
    Log(log::LogArgs),
    Type(types::TypeArgs),
    Match(types::MatchArgs),
    Import(data::trees::import::ImportArgs),
    Leave(cluster::leave::LeaveArgs),
    Key(key::KeyArgs),
    User(access::user::UserArgs),
    Acl(access::acl::AclArgs),
    Auth(access::auth::AuthArgs),
    Whoami(access::whoami::WhoamiArgs),
    Bench(bench::BenchArgs),
    Tunnel(run::tunnel::TunnelArgs),
    Ticket(run::ticket::TicketArgs),
    Completions(completions::CompletionsArgs),
}

impl Command {
    /// Adds the options that stood before the command.
    fn with(mut self, before: RemoteArgs) -> Result<Command, CliError> {
        let after = match &mut self {
            Command::Run(_)
            | Command::Join(_)
            | Command::Start(_)
            | Command::Config(_)
            | Command::Demo(_)
            | Command::Ticket(_)
            | Command::Completions(_) => {
                if before == RemoteArgs::default() {
                    return Ok(self);
                }
                let text = "run, join, start, config, demo, ticket and completions do not connect to a node; \
                            put their options after the command";
                return Err(CliError::Usage(text.to_owned()));
            }
            Command::Get(args) => &mut args.remote,
            Command::Key(args) => &mut args.remote,
            Command::Set(args) => &mut args.remote,
            Command::Delete(args) => &mut args.remote,
            Command::Tree(args) => &mut args.remote,
            Command::Ls(args) => &mut args.remote,
            Command::Diff(args) => &mut args.remote,
            Command::Apply(args) => &mut args.remote,
            Command::Undo(args) => &mut args.remote,
            Command::Edit(args) => &mut args.remote,
            Command::Cp(args) => &mut args.remote,
            Command::Mv(args) => &mut args.remote,
            Command::Watch(args) => &mut args.remote,
            Command::Send(args) => &mut args.remote,
            Command::Monitor(args) => &mut args.remote,
            Command::Status(args) => &mut args.remote,
            Command::Members(args) => &mut args.remote,
            Command::Clients(args) => &mut args.remote,
            Command::Top(args) => &mut args.remote,
            Command::History(args) => &mut args.remote,
            Command::Conflicts(args) => &mut args.remote,
            Command::Shards(args) => &mut args.remote,
            Command::Verify(args) => &mut args.remote,
            Command::State(args) => &mut args.remote,
            Command::Wait(args) => &mut args.remote,
            Command::Snapshot(args) => &mut args.remote,
            Command::Log(args) => &mut args.remote,
            Command::Type(args) => &mut args.remote,
            Command::Match(args) => &mut args.remote,
            Command::Import(args) => &mut args.remote,
            Command::Leave(args) => &mut args.remote,
            Command::User(args) => &mut args.remote,
            Command::Acl(args) => &mut args.remote,
            Command::Auth(args) => &mut args.remote,
            Command::Whoami(args) => &mut args.remote,
            Command::Bench(args) => &mut args.remote,
            Command::Tunnel(args) => &mut args.remote,
        };
        *after = std::mem::take(after).or(before);
        Ok(self)
    }
}

/// The command line's definition: all commands and options with their help, for manual pages.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs one command line (the program's name first), to its end. Prints what there is to print.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let kept = keep_signals(&args);
    survive_file_limit();
    // Behind `--` there are no options.
    let is_json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    say::as_json(is_json);
    let parsed = Cli::command().try_get_matches_from(&args).and_then(|matches| {
        typed::note(&matches);
        Cli::from_arg_matches(&matches)
    });
    let done = match parsed {
        Ok(cli) => cli.command.with(cli.before).and_then(|command| execute(command, kept)),
        Err(mut error) => {
            kept.into_iter().for_each(Kept::give_back);
            let command = Cli::command();
            other_words::keep_near(&mut error);
            other_words::name_whole_word(&mut error, &args, &command);
            let code = match other_words::advice(&error, &args, &command) {
                Some(text) => CliError::Usage(text).tell(is_json),
                None => error::explain(&error, is_json),
            };
            return code.into();
        }
    };
    match done {
        Ok(()) => EXIT_OK.into(),
        Err(error) => {
            let is_told = !matches!(error, CliError::Interrupted(_) | CliError::OutputClosed)
                && !error.to_string().is_empty();
            if is_told && run::logging::is_journal() {
                // The journal's priority of an error.
                let _ = std::io::stderr().write_all(b"<3>");
            }
            error.tell(is_json).into()
        }
    }
}

/// What a node's process hears before it listens: whoever starts it may end it at once, and reading the command line takes
/// time. Where the system refuses, the command tries again, and says so. Of a command line that has options before the command,
/// only reading it tells that.
fn keep_signals(args: &[OsString]) -> Option<Kept> {
    match args.get(1)?.to_str()? {
        "run" | "join" | "start" => Kept::signals().ok(),
        "demo" => Kept::ends().ok(),
        _ => None,
    }
}

fn execute(command: Command, kept: Option<Kept>) -> Result<(), CliError> {
    open_files::require()?;
    match command {
        Command::Run(args) => run::node_process::run(kept, || args.prepare()),
        Command::Join(args) => run::node_process::run(kept, || args.prepare()),
        Command::Start(args) => run::node_process::run(kept, || args.prepare()),
        Command::Config(args) => run::check::run(args),
        Command::Demo(args) => run::demo::run(args, kept),
        Command::Get(args) => rt::block_on(data::get::run(args)),
        Command::Set(args) => rt::block_on(data::set::run(args)),
        Command::Delete(args) => rt::block_on(data::delete::run(args)),
        Command::Tree(args) => rt::block_on(data::trees::tree::run(args)),
        Command::Ls(args) => rt::block_on(data::trees::ls::run(args)),
        Command::Diff(args) => rt::block_on(data::trees::apply::run_diff(args)),
        Command::Apply(args) => rt::block_on(data::trees::apply::run_apply(args)),
        Command::Undo(args) => rt::block_on(data::trees::undo::run(args)),
        Command::Edit(args) => rt::block_on(data::edit::run(args)),
        Command::Cp(args) => rt::block_on(data::trees::copy::copy(args)),
        Command::Mv(args) => rt::block_on(data::trees::copy::rename(args)),
        Command::Watch(args) => rt::block_on(data::watch::run(args)),
        Command::Send(args) => rt::block_on(data::send::run(args)),
        Command::Monitor(args) => rt::block_on(data::monitor::run(args)),
        Command::Status(args) => rt::block_on(cluster::status::run(args)),
        Command::Clients(args) => rt::block_on(cluster::clients::run(args)),
        Command::Top(args) => rt::block_on(cluster::top::run(args)),
        Command::History(args) => rt::block_on(data::history::run(args)),
        Command::Members(args) => rt::block_on(cluster::members::run(args)),
        Command::Conflicts(args) => rt::block_on(cluster::conflicts::run(args)),
        Command::Shards(args) => rt::block_on(cluster::shards::run(args)),
        Command::Verify(args) => rt::block_on(cluster::verify::run(args)),
        Command::State(args) => rt::block_on(cluster::state::run(args)),
        Command::Wait(args) => rt::block_on(cluster::wait::run(args)),
        Command::Snapshot(args) => rt::block_on(snapshot::run(args)),
        Command::Log(args) => rt::block_on(log::run(args)),
        Command::Type(args) => rt::block_on(types::run_type(args)),
        Command::Match(args) => rt::block_on(types::run_match(args)),
        Command::Import(args) => rt::block_on(data::trees::import::run(args)),
        Command::Leave(args) => rt::block_on(cluster::leave::run(args)),
        Command::Key(args) => key::run(args),
        Command::User(args) => rt::block_on(access::user::run(args)),
        Command::Acl(args) => rt::block_on(access::acl::run(args)),
        Command::Auth(args) => rt::block_on(access::auth::run(args)),
        Command::Whoami(args) => rt::block_on(access::whoami::run(args)),
        Command::Bench(args) => bench::run(&args),
        Command::Ticket(args) => run::ticket::run(args),
        Command::Completions(args) => completions::run(&args),
        Command::Tunnel(args) => rt::block_on(run::tunnel::run(args)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// All texts that follow a command's options, of this command and those below it.
    fn texts_of(command: &clap::Command, name: &str, out: &mut Vec<(String, String)>) {
        let name = format!("{name} {}", command.get_name());
        let texts = [command.get_after_help(), command.get_after_long_help()];
        out.extend(texts.into_iter().flatten().map(|text| (name.clone(), text.to_string())));
        command.get_subcommands().for_each(|command| texts_of(command, &name, out));
    }

    #[test]
    fn help_fits_any_terminal_of_80_columns_and_more() {
        let mut texts = Vec::new();
        texts_of(&Cli::command(), "", &mut texts);
        assert!(texts.len() > 40, "{}", texts.len());
        for (command, text) in texts {
            let mut before = "";
            for line in text.lines() {
                let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                // What stands in columns is broken badly by a terminal.
                assert!(is_prose(line) || line.chars().count() < 80, "{command}: {line}");
                // A paragraph is one line, which the terminal's width breaks; broken twice, it has
                // lines of single words.
                let is_continued = is_prose(before) && is_prose(line) && !before.ends_with(':');
                assert!(!is_continued, "{command}: {before}\n{line}");
                before = line;
            }
        }
    }

    /// Who writes a service's restart rules reads them there.
    #[test]
    fn what_starts_nodes_tells_of_all_their_exit_codes() {
        let mut all = Vec::new();
        texts_of(&command(), "", &mut all);
        for name in ["run", "join", "start"] {
            let of_it = |(command, _): &&(String, String)| command.ends_with(&format!(" {name}"));
            let helps: Vec<&String> = all.iter().filter(of_it).map(|(_, text)| text).collect();
            let told = helps.iter().any(|text| {
                let codes = text.split_once("Exit code:").map(|(_, codes)| codes);
                codes.is_some_and(|codes| {
                    ["0 ", " 1 ", " 2 ", " 3 ", " 4 "].iter().all(|code| codes.contains(code))
                })
            });
            assert!(told, "{name}: {helps:?}");
        }
    }

    #[test]
    fn every_command_and_option_says_what_it_is() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            assert!(command.get_after_help().is_some(), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
            }
        }
    }
}
