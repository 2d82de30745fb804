//! Writes the manual pages of the program and of each of its commands into a folder: for packages.
//!
//! ```sh
//! cargo run --example man_pages -- target/man
//! ```

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("give the folder for the pages")?;
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(distkv::cli::command(), &folder)?;
    Ok(())
}
