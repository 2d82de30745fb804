//! Manual pages: what help shows in columns or as a file to copy is not run together, as a paragraph is.

#[path = "../../examples/man_pages.rs"]
mod program;

#[test]
fn examples_and_files_stay_as_they_are_and_paragraphs_do_not() {
    let help = "\
Examples:
  distkv-node run --name 'n1'

  distkv-node set a \\
    5

Nothing is lost, says
the node.

Configuration file:
    name = \"n1\"   # its name
  .dot

Exit code: 0 done.";
    let page = "\
.SH \"EXAMPLES\"
.nf
.in 3n
distkv\\-node run \\-\\-name \\(aqn1\\(aq
.in
.fi
.PP
.nf
.in 3n
distkv\\-node set a \\e
  5
.in
.fi
.SH \"NOTES\"
Nothing is lost, says
the node.
.SS
Configuration file
.nf
.in 3n
  name = \"n1\"   # its name
\\&.dot
.in
.fi
.SH \"EXIT STATUS\"
Exit code: 0 done.
";
    assert_eq!(program::sections(help), page);
}
