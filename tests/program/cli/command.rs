//! One command line, run to its end.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::fake::FakeNode;
use crate::processes::{NodeProcess, wait_until};

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program, with nothing of the environment that it would heed.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distkv-node"));
    command.args(arguments);
    command.env_remove("DISTKV_CONNECT").env_remove("DISTKV_LOG").env_remove("DISTKV_TICKET");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The program `distkv-bench`, with nothing of the environment that it would heed.
pub(crate) fn bench_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::processes::bench_program());
    command.args(arguments);
    command.env_remove("DISTKV_CONNECT");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `distkv-bench`.
pub(crate) fn bench(arguments: &[&str]) -> Done {
    done(bench_program(arguments).output().unwrap())
}

/// Runs it with this environment and this standard input.
pub(crate) fn run(arguments: &[&str], environment: &[(&str, &str)], input: &[u8]) -> Done {
    let mut command = program(arguments);
    command.envs(environment.iter().copied());
    let mut child = command.spawn().unwrap();
    // It need not read it.
    let _ = child.stdin.take().unwrap().write_all(input);
    done(child.wait_with_output().unwrap())
}

/// Runs it against a node.
pub(crate) fn at(node: &NodeProcess, arguments: &[&str]) -> Done {
    at_with(node, arguments, b"")
}

/// Runs it against a node, with this standard input.
pub(crate) fn at_with(node: &NodeProcess, arguments: &[&str], input: &[u8]) -> Done {
    run(&[arguments, &["--connect", &node.client.to_string()]].concat(), &[], input)
}

/// Runs it against a node, and it must go well; gives what it prints.
pub(crate) fn ok(node: &NodeProcess, arguments: &[&str]) -> String {
    let done = at(node, arguments);
    assert_eq!(done.code, 0, "{arguments:?}: {} {:#?}", done.stderr, node.log());
    done.stdout
}

fn done(output: Output) -> Done {
    Done {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs it with a standard output that nobody reads any more.
pub(crate) fn run_with_closed_output(arguments: &[&str]) -> Done {
    let mut child = program(arguments).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    Done { code: output.status.code().unwrap(), stdout: String::new(), stderr }
}

/// What a command with `--json` has said in a line besides what it prints.
pub(crate) fn note(line: &str) -> String {
    let said: serde_json::Value = serde_json::from_str(line).expect("one line of JSON");
    said["note"].as_str().unwrap_or_else(|| panic!("no note: {line}")).to_owned()
}

/// Runs it alone.
pub(crate) fn cli(arguments: &[&str]) -> Done {
    run(arguments, &[], b"")
}

/// Runs it against a node.
pub(crate) fn cli_with(node: &FakeNode, arguments: &[&str]) -> Done {
    cli_with_input(node, arguments, b"")
}

/// The same, again until it has asked for this: the little time that it is given may be over on a busy machine before
/// it is connected, and then it has asked for nothing.
pub(crate) fn cli_until_asked(node: &FakeNode, action: &str, arguments: &[&str]) -> Done {
    wait_until("it asks in time", || {
        let done = cli_with(node, arguments);
        let is_late = done.code == 6 && !node.is_asked(action);
        (!is_late).then_some(done)
    })
}

/// Runs a command, again until it has met the node in the little time that it is given.
pub(crate) fn until_met(run: impl Fn() -> Done) -> Done {
    wait_until("it is connected in time", || {
        let done = run();
        (!done.stderr.contains("cannot connect to")).then_some(done)
    })
}

/// Runs it against a node, with this standard input.
pub(crate) fn cli_with_input(node: &FakeNode, arguments: &[&str], input: &[u8]) -> Done {
    let address = node.address.to_string();
    run(&[arguments, &["--connect", &address]].concat(), &[], input)
}
