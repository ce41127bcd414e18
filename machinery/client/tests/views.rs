//! Every projection of the workspace has a row among those whose memory is measured, and reads nulls as Go does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Sources of a crate by its path, those of tests left out.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("a folder of sources").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

fn projections(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| line.starts_with("impl"));
    let named = lines.filter_map(|line| line.split_once("Projection for "));
    named.map(|(_, name)| name.trim_end_matches([' ', '{', '}']))
}

/// Guards against projections that decode by `serde_json`, to which an object with a null list is unreadable.
#[test]
fn every_view_is_read_with_nulls() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for group in ["apiserver", "cluster", "controllers", "machinery", "node"] {
        sources(&root.join(group), &mut files);
    }
    let mut seen = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let count = projections(&text).count();
        // The client's own are those of its tests.
        if count == 0 || file.starts_with(root.join("machinery/client")) {
            continue;
        }
        seen += count;
        for call in ["serde_json::from_slice(json)", "serde_json::from_slice::<"] {
            assert!(
                !text.contains(call),
                "{}: use machinery_client::json",
                file.display()
            );
        }
    }
    assert!(seen > 25, "{seen}");
}

#[test]
fn every_view_is_measured() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for group in ["apiserver", "cluster", "controllers", "machinery", "node"] {
        let group = root.join(group);
        let mut files = Vec::new();
        sources(&group, &mut files);
        let mut crates: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let inside = file.strip_prefix(&group).unwrap();
            let mut parts = inside.components();
            let name: PathBuf = parts
                .by_ref()
                .take_while(|part| part.as_os_str() != "src")
                .collect();
            crates.entry(name).or_default().push(text);
        }
        for (name, texts) in crates.iter().filter(|(name, _)| !name.ends_with("client")) {
            for view in texts.iter().flat_map(|text| projections(text)) {
                seen += 1;
                // A generic view is measured of one of its kinds at least.
                let row = match view.split_once('<') {
                    Some((name, _)) => format!("check::<{name}<"),
                    None => format!("check::<{view}>("),
                };
                assert!(
                    texts.iter().any(|text| text.contains(&row)),
                    "{}: {view} has no row in view_memory.rs",
                    name.display()
                );
            }
        }
    }
    assert!(seen > 25, "{seen}");
}
