//! Test programs that cargo has built, as its messages name them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// Test programs by crate and, but for the library's own, by name.
pub(crate) type Programs = BTreeMap<(String, Option<String>), Program>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub path: PathBuf,
    /// Directory in which cargo starts the tests of its crate.
    folder: PathBuf,
}

impl Program {
    /// A command that starts the program, directly or through another one, as cargo would.
    pub(crate) fn command(&self, mut command: Command, package: &str) -> Command {
        command.current_dir(&self.folder);
        command.env("CARGO_PKG_NAME", package);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Message of cargo about what it has built.
pub(crate) fn built(messages: &str) -> Programs {
    let messages = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| message.pointer(pointer)?.as_str().map(str::to_owned);
        let program = match text("/target/kind/0")?.as_str() {
            "test" => Some(text("/target/name")?),
            _ => None,
        };
        let folder = PathBuf::from(text("/manifest_path")?).parent()?.to_owned();
        let path = PathBuf::from(text("/executable")?);
        Some((
            (package(&text("/package_id")?)?, program),
            Program { path, folder },
        ))
    });
    messages.collect()
}

/// The name in `path+file:///a/b#name@0.1.0`, or in `path+file:///a/name#0.1.0`.
fn package(id: &str) -> Option<String> {
    let (path, version) = id.rsplit_once('#')?;
    let name = version.split_once('@').map(|(name, _)| name);
    name.or_else(|| path.rsplit('/').next()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_programs_are_found_by_crate_and_name() {
        let line = |id: &str, kind: &str, name: &str, program: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/r/a/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},"executable":{program}}}"#
            )
        };
        let text = [
            line("path+file:///r/a#a-b@0.1.0", "lib", "a_b", r#""/t/a_b-1""#),
            line("path+file:///r/x#0.1.0", "test", "fuzz", r#""/t/fuzz-2""#),
            line("path+file:///r/c#a-c@0.1.0", "lib", "a_c", "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let program = |path: &str| Program {
            path: path.into(),
            folder: "/r/a".into(),
        };
        let expected = [
            (("a-b".to_owned(), None), program("/t/a_b-1")),
            (("x".to_owned(), Some("fuzz".to_owned())), program("/t/fuzz-2")),
        ];
        assert_eq!(built(&text.join("\n")), expected.into_iter().collect());
    }
}
