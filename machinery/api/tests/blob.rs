//! The checked-in blob is what the compiler makes of the checked-in facts.

use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn table_blob_matches_facts() {
    let facts = Path::new(env!("CARGO_MANIFEST_DIR")).join("facts");
    let mut files = BTreeMap::new();
    for folder in ["", "types/"] {
        for entry in std::fs::read_dir(facts.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name.ends_with(".json") {
                files.insert(
                    format!("{folder}{name}"),
                    std::fs::read_to_string(entry.path()).unwrap(),
                );
            }
        }
    }
    let made = machinery_api::compile::compile(&files).unwrap();
    let checked_in = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/table.bin")).unwrap();
    assert!(
        made == checked_in,
        "cargo run -p machinery-api --example compile_table makes it again"
    );
}
