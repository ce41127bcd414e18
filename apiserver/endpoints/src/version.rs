//! The answer to `/version`.

use serde::Serialize;

/// `version.Info` of apimachinery.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionInfo {
    pub major: String,
    pub minor: String,
    pub emulation_major: String,
    pub emulation_minor: String,
    pub min_compatibility_major: String,
    pub min_compatibility_minor: String,
    pub git_version: String,
    pub git_commit: String,
    pub git_tree_state: String,
    pub build_date: String,
    pub go_version: String,
    pub compiler: String,
    pub platform: String,
}

impl Default for VersionInfo {
    fn default() -> Self {
        let text = str::to_owned;
        Self {
            major: text("1"),
            minor: text("37"),
            emulation_major: text("1"),
            emulation_minor: text("37"),
            min_compatibility_major: text("1"),
            min_compatibility_minor: text("36"),
            git_version: text(machinery_meta::version::GIT_VERSION),
            git_commit: "0".repeat(40),
            git_tree_state: text("clean"),
            build_date: text("1970-01-01T00:00:00Z"),
            go_version: text("rust"),
            compiler: text("rustc"),
            platform: format!("{}/{}", std::env::consts::OS, go_arch()),
        }
    }
}

/// Go's name of the processor, which clients compare.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
