//! Whatever stands in a key file: it must be read or refused, and what was read must read back.
#![no_main]

use distkv_secure::key_file::KeyFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(file) = KeyFile::parse(text) {
        assert_eq!(KeyFile::parse(&file.to_text()).as_ref(), Ok(&file));
    }
});
