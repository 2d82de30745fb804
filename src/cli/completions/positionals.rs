//! What stands in a command line without an option before it: a file, one of a few words, or something that no shell knows,
//! such as a path of an entry. The generators for bash and fish know little of that.

use clap::{Arg, Command, ValueHint};

/// What can be completed where a command takes something that is no option.
#[derive(Debug, PartialEq, Eq)]
enum Offer {
    /// Files and directories.
    Files,
    /// These words, behind so many others of the command.
    Words(Vec<String>, usize),
    /// Nothing: a path, a name, an address.
    Nothing,
}

/// A command without commands below it: the words that name it, of one spelling of each, and what it takes.
struct Leaf {
    names: Vec<String>,
    offer: Offer,
}

/// For bash, the generator offers a command's options where nothing is typed yet, and files only behind the first letter. Where
/// a command takes a file or one of a few words, those are offered instead; its options still are behind a dash.
pub(super) fn offer_in_bash(text: &str, command: &Command, name: &str) -> String {
    const ALL: &str = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    let mut text = text.to_owned();
    for leaf in leaves(command) {
        let instead = match leaf.offer {
            // With nothing to offer, bash completes names of files itself where it may, with a slash behind those of directories.
            Offer::Files => {
                format!("COMPREPLY=()\n            {}", in_bash_4("-o bashdefault -o default"))
            }
            Offer::Words(words, _) => {
                format!("COMPREPLY=( $(compgen -W \"{}\" -- \"${{cur}}\") )", words.join(" "))
            }
            Offer::Nothing => continue,
        };
        let names = leaf.names.iter().map(|name| name.replace('-', SEPARATOR));
        let names = [name.replace('-', "__")].into_iter().chain(names);
        let head = format!("\n        {})\n", names.collect::<Vec<_>>().join(SEPARATOR));
        let Some((before, rest)) = text.split_once(&head) else { continue };
        // It is typed behind the command's name, or anywhere else; the generator offers all for each.
        let Some((at_once, rest)) = rest.split_once(ALL) else { continue };
        let Some((options, rest)) = rest.split_once(ALL) else { continue };
        let at_once = match (at_once.find(" || ${COMP_CWORD}"), at_once.find(" ]] ; then")) {
            (Some(from), Some(to)) if from < to => {
                let (start, end) = (at_once.get(..from), at_once.get(to..));
                start.unwrap_or_default().to_owned() + end.unwrap_or_default()
            }
            _ => at_once.to_owned(),
        };
        text = [before, &head, &at_once, ALL, options, &instead, rest].concat();
    }
    text
}

/// A line that tells bash what to do with what comes of the completion under way. Earlier versions have no such command.
pub(super) fn in_bash_4(options: &str) -> String {
    format!("if [[ \"${{BASH_VERSINFO[0]}}\" -ge 4 ]]; then compopt {options} 2> /dev/null; fi")
}

/// What the generator for bash puts between the names of commands.
const SEPARATOR: &str = "__subcmd__";

/// For fish, the generator says nothing of what is no option: then fish offers files everywhere, and no words.
pub(super) fn offer_in_fish(text: &str, command: &Command, name: &str) -> String {
    let mut text = text.to_owned();
    let function = format!("__fish_{}_using_subcommand", name.replace('-', "_"));
    for leaf in leaves(command) {
        let condition = match &*leaf.names {
            [command] => format!("{function} {command}"),
            [group, command] => {
                format!("{function} {group}; and __fish_seen_subcommand_from {command}")
            }
            _ => continue,
        };
        match leaf.offer {
            Offer::Files => {}
            Offer::Nothing => {
                text.push_str(&format!("complete -c {name} -n \"{condition}\" -f\n"));
            }
            Offer::Words(words, before) => {
                // The program's name and those of the commands come first. Values of options are counted, too: then they are
                // offered too soon, which does no harm.
                let count = 1 + leaf.names.len() + before;
                let typed = format!("test (__fish_number_of_cmd_args_wo_opts) -ge {count}");
                let words = words.join(" ");
                text.push_str(&format!("complete -c {name} -n \"{condition}\" -f\n"));
                text.push_str(&format!(
                    "complete -c {name} -n \"{condition}; and {typed}\" -f -a \"{words}\"\n"
                ));
            }
        }
    }
    text
}

fn leaves(command: &Command) -> Vec<Leaf> {
    let mut found = Vec::new();
    add_leaves(command, &mut Vec::new(), &mut found);
    found
}

fn add_leaves(command: &Command, above: &mut Vec<String>, found: &mut Vec<Leaf>) {
    for below in command.get_subcommands() {
        above.push(below.get_name().to_owned());
        if below.has_subcommands() {
            add_leaves(below, above, found);
        } else {
            found.push(Leaf { names: above.clone(), offer: offer_of(below) });
        }
        above.pop();
    }
}

fn offer_of(command: &Command) -> Offer {
    let is_file = |arg: &Arg| {
        let hint = arg.get_value_hint();
        matches!(hint, ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath)
    };
    if command.get_positionals().any(is_file) {
        return Offer::Files;
    }
    let words = command.get_positionals().map(|arg| arg.get_possible_values());
    let mut words = words.enumerate().filter(|(_, words)| !words.is_empty());
    match words.next() {
        Some((before, words)) => {
            let words = words.iter().filter(|word| !word.is_hide_set());
            Offer::Words(words.map(|word| word.get_name().to_owned()).collect(), before)
        }
        None => Offer::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_takes_is_known() {
        let command = crate::cli::command();
        let leaves = leaves(&command);
        let offer = |names: &str| {
            let is_it = |leaf: &&Leaf| leaf.names.join(" ") == names;
            &leaves.iter().find(is_it).unwrap_or_else(|| panic!("{names}")).offer
        };
        assert_eq!(*offer("import"), Offer::Files);
        assert_eq!(*offer("snapshot verify"), Offer::Files);
        assert_eq!(*offer("get"), Offer::Nothing);
        let roles = ["user", "operator", "admin"].map(String::from).to_vec();
        assert_eq!(*offer("user role"), Offer::Words(roles, 1));
        assert!(matches!(offer("completions"), Offer::Words(shells, 0) if shells.len() > 3));
    }
}
