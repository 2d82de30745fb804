//! `edit` and what people do meanwhile: the commands that it prints for them, and signals while the editor runs. Also the
//! commands that other commands print.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::cli::command::{ok, program};
use crate::processes::{NodeProcess, PROGRAM, file_names, signal, wait_until};

/// Where somebody edits; its name is one that a shell takes apart.
struct Desk {
    folder: tempfile::TempDir,
    node: NodeProcess,
}

impl Desk {
    fn new() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap(), node: NodeProcess::run("n1") };
        fs::create_dir(desk.drafts()).unwrap();
        desk
    }

    fn drafts(&self) -> PathBuf {
        self.folder.path().join("it's drafts")
    }

    /// Begins `edit`, in a group of processes of its own. The script that stands for somebody at an editor gets the id of
    /// `edit`'s process, and the file.
    fn edit(&self, arguments: &[&str], script: &str) -> Child {
        let editor = self.folder.path().join("editor");
        fs::write(&editor, format!("#!/bin/sh\nulimit -c 0\n{script}\n")).unwrap();
        fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).unwrap();
        let at = self.node.client.to_string();
        let mut command = program(&[&["edit", "--connect", &at], arguments].concat());
        command.env("VISUAL", "").env("TMPDIR", self.drafts()).process_group(0);
        command.env("EDITOR", format!("{} $PPID", editor.display()));
        command.spawn().unwrap()
    }

    /// The same to its end: its exit code, and what it has said.
    fn edited(&self, arguments: &[&str], script: &str) -> (Option<i32>, String) {
        let done = self.edit(arguments, script).wait_with_output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    }

    /// The one text that is left, which is removed.
    fn left(&self) -> String {
        let [name] = &file_names(&self.drafts())[..] else {
            panic!("{:?}", file_names(&self.drafts()))
        };
        let file = self.drafts().join(name);
        let text = fs::read_to_string(&file).unwrap();
        fs::remove_file(file).unwrap();
        text
    }

    fn is_empty(&self) -> bool {
        file_names(&self.drafts()).is_empty()
    }
}

/// Types a command that was printed, at a shell: its exit code, and what it prints.
fn typed(command: &str) -> (Option<i32>, String) {
    let programs = Path::new(PROGRAM).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).env_remove("DISTKV_CONNECT");
    let done = shell.output().unwrap();
    (done.status.code(), String::from_utf8(done.stdout).unwrap())
}

#[test]
fn without_an_editor_and_a_terminal_nothing_is_begun() {
    let desk = Desk::new();
    set(&desk.node, "a", "1");
    let at = desk.node.client.to_string();
    let mut command = program(&["edit", "a", "--connect", &at]);
    command.env("VISUAL", "").env("EDITOR", "").env("TMPDIR", desk.drafts());
    let done = command.output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    for word in ["EDITOR", "VISUAL", "`set`"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(desk.is_empty());
}

/// Sets an entry, whose path may be like an option.
fn set(node: &NodeProcess, path: &str, value: &str) {
    let at = node.client.to_string();
    let done = program(&["set", "--connect", &at, "--", path, value]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The commands in a text.
fn printed(text: &str) -> Vec<&str> {
    text.split('`').filter(|part| part.starts_with("distkv-node ")).collect()
}

#[test]
fn the_commands_that_edit_prints_are_complete_and_overwrite_nobody_s_change() {
    let desk = Desk::new();
    let node = &desk.node;
    for path in ["-x", "it's"] {
        set(node, path, "1");
        let faster =
            format!("{PROGRAM} set --connect {} -- \"{path}\" 2 && echo 3 > \"$2\"", node.client);
        let (code, said) = desk.edited(&["--", path], &faster);
        assert_eq!(code, Some(5), "{said}");
        let [get, again] = printed(&said)[..] else { panic!("{said}") };
        assert_eq!(typed(get), (Some(0), String::from("2\n")), "{get}");
        // Somebody changes it once more, behind what was compared.
        set(node, path, "4");
        assert_eq!(typed(again).0, Some(5), "{again}");
        assert_eq!(typed(get).1, "4\n");
        desk.left();
        // Nobody does.
        let (_, said) = desk.edited(&["--", path], &faster);
        let [_, again] = printed(&said)[..] else { panic!("{said}") };
        assert_eq!(typed(again).0, Some(0), "{again}");
        assert_eq!(typed(get).1, "3\n");
        desk.left();
    }

    // What cannot be read as JSON, of an entry that is there and of one that is new.
    for (path, faster) in [("a", false), ("b", true)] {
        if faster {
            ok(node, &["set", path, "1"]);
        }
        let (code, said) = desk.edited(&[path], "echo '{\"on\": ' > \"$2\"");
        assert_eq!(code, Some(1), "{said}");
        let [_, again] = printed(&said)[..] else { panic!("{said}") };
        let [name] = &file_names(&desk.drafts())[..] else { panic!("{said}") };
        fs::write(desk.drafts().join(name), "5\n").unwrap();
        assert_eq!(typed(again).0, Some(0), "{again}");
        assert_eq!(ok(node, &["get", path]), "5\n");
        assert_eq!(typed(again).0, Some(5), "{again}");
        desk.left();
    }
}

#[test]
fn the_command_that_delete_prints_is_for_the_same_node() {
    let node = NodeProcess::run("n1");
    for path in ["a", "-b", "it's"] {
        set(&node, &format!("{path}.c"), "1");
        let arguments = ["delete", "--connect", &node.client.to_string(), "--", path];
        let done = program(&arguments).output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        let [command] = printed(&said)[..] else { panic!("{said}") };
        assert_eq!(typed(command), (Some(0), format!("{path}: 1 deleted\n")), "{command}");
    }
}

#[test]
fn what_is_pressed_in_an_editor_is_for_the_editor() {
    let desk = Desk::new();
    // As a terminal sends it: to the whole group.
    let presses = "kill -s INT 0; kill -s QUIT 0";
    let script = format!("trap : INT QUIT; {presses}; echo 5 > \"$2\"");
    let (code, said) = desk.edited(&["a"], &script);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(ok(&desk.node, &["get", "a"]), "5\n");

    // An editor that does nothing about it is ended by it, and what was written by then is not lost.
    for press in ["INT", "QUIT"] {
        let (code, said) = desk.edited(&["a"], &format!("kill -s {press} 0; echo 6 > \"$2\""));
        assert!(code == Some(1) && said.contains("nothing was changed"), "{code:?} {said}");
        assert!(desk.is_empty(), "{said}");
        let (code, said) = desk.edited(&["a"], &format!("echo 7 > \"$2\"; kill -s {press} 0"));
        assert!(code == Some(1) && said.contains("your text is in"), "{code:?} {said}");
        assert_eq!(desk.left(), "7\n");
    }
    assert_eq!(ok(&desk.node, &["get", "a"]), "5\n");
}

#[test]
fn edit_says_where_the_text_is_when_it_is_ended() {
    let desk = Desk::new();
    ok(&desk.node, &["set", "a", "5"]);
    let pipe = desk.folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for signal in ["TERM", "HUP"] {
        let waits = format!("echo 8 > \"$2\"; kill -s {signal} $1; read line < {}", pipe.display());
        let mut editing = desk.edit(&["a"], &waits);
        assert_eq!(editing.wait().unwrap().code(), Some(130), "{signal}");
        // The editor runs on, and ends now.
        drop(OpenOptions::new().write(true).open(&pipe).unwrap());
        let mut said = String::new();
        editing.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.starts_with("interrupted: "), "{said}");
        let [_, again] = printed(&said)[..] else { panic!("{said}") };
        assert_eq!(typed(again).0, Some(0), "{again}");
        assert_eq!(desk.left(), "8\n");
        assert_eq!(ok(&desk.node, &["get", "a"]), "8\n");
        ok(&desk.node, &["set", "a", "5"]);
    }
}

#[test]
fn ctrl_c_behind_the_editor_says_where_the_text_is() {
    let desk = Desk::new();
    ok(&desk.node, &["set", "a", "5"]);
    // Its node is away, and what listens there instead says nothing: so it waits.
    let script = format!("kill -9 {}; echo 9 > \"$2\"", desk.node.pid());
    let editing = desk.edit(&["a", "--timeout", "60s"], &script);
    let silent = wait_until("the node's port is free", || TcpListener::bind(desk.node.client).ok());
    // It calls when it knows that the editor has ended. Until then, what is pressed would be for the editor.
    let _met = silent.accept().unwrap();
    signal(editing.id(), "INT");
    let done = editing.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(130) && said.contains("your text is in"), "{said}");
    assert_eq!(desk.left(), "9\n");
}
