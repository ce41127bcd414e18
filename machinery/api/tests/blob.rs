//! The checked-in blob is what the compiler makes of the checked-in facts and additions.

use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn table_blob_matches_facts() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    for folder in ["facts/", "facts/types/", "additions/types/"] {
        for entry in std::fs::read_dir(here.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let folder = if folder.ends_with("types/") { "types/" } else { "" };
            if name.ends_with(".json") {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                files.insert(format!("{folder}{name}"), text);
            }
        }
    }
    let added = std::fs::read_to_string(here.join("additions/resources.json")).unwrap();
    files.insert(machinery_api::compile::ADDED_RESOURCES.to_owned(), added);
    let made = machinery_api::compile::compile(&files).unwrap();
    let checked_in = std::fs::read(here.join("src/table.bin")).unwrap();
    assert!(
        made == checked_in,
        "cargo run -p machinery-api --example compile_table makes it again"
    );
}
