//! Writes the manual pages of the program and of each of its commands into a folder: for packages.
//!
//! ```sh
//! cargo run --example man_pages -- target/man
//! ```

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

/// How far lines are indented that stay as they are, such as examples: with less than paragraphs have, lines of help fit
/// into 80 columns.
const VERBATIM_INDENT: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("give the folder for the pages")?;
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    let mut command = distkv::cli::command().disable_help_subcommand(true);
    command.build();
    write(&command, &folder)?;
    Ok(())
}

/// The page of a command, and those of the commands below it.
fn write(command: &Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(below, folder)?;
    }
    let man = Man::new(command.clone());
    fs::write(folder.join(man.get_filename()), page(command, &man)?)
}

fn page(command: &Command, man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(help) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        page.extend(sections(&help.to_string()).bytes());
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// What the help says behind the options, as sections of a manual page. Indented lines stay as they are: examples, tables, a
/// configuration file. The rest is paragraphs.
pub(crate) fn sections(help: &str) -> String {
    let mut roff = String::new();
    let mut section = "";
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let is_verbatim = |line: &&str| line.starts_with(' ');
        let goes_on = section == "EXAMPLES" && paragraph.lines().all(|line| is_verbatim(&line));
        let (name, rest) = match paragraph.trim_start_matches('\n') {
            text if text.starts_with("Exit code") => ("EXIT STATUS", text),
            text if goes_on => (section, text),
            text => match text.split_once('\n') {
                Some(("Examples:" | "Example:", rest)) => ("EXAMPLES", rest),
                _ => ("NOTES", text),
            },
        };
        let (title, rest) = match rest.split_once('\n') {
            Some((title, rest)) if title.ends_with(':') && rest.starts_with(' ') => (title, rest),
            _ => ("", rest),
        };
        if name != section {
            roff.push_str(&format!(".SH {name:?}\n"));
        }
        match title.trim_end_matches(':') {
            "" if name == section => roff.push_str(".PP\n"),
            "" => {}
            title => roff.push_str(&format!(".SS\n{}", escaped(title))),
        }
        section = name;
        let lines: Vec<&str> = rest.lines().collect();
        for part in lines.chunk_by(|a, b| is_verbatim(a) == is_verbatim(b)) {
            let is_as_it_is = part.iter().all(is_verbatim);
            if is_as_it_is {
                roff.push_str(&format!(".nf\n.in {VERBATIM_INDENT}n\n"));
            }
            for line in part {
                let line = if is_as_it_is { line.strip_prefix("  ").unwrap_or(line) } else { line };
                roff.push_str(&escaped(line));
            }
            if is_as_it_is {
                roff.push_str(".in\n.fi\n");
            }
        }
    }
    roff
}

/// A line of text, whatever is in it.
fn escaped(line: &str) -> String {
    let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
    let line = line.replace('\\', "\\e").replace('-', "\\-").replace('`', "\\(ga");
    format!("{guard}{}\n", line.replace('\'', "\\(aq"))
}
