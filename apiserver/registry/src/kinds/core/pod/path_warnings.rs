//! Paths in a volume that hide each other.

use super::warnings::Warnings;
use crate::shared::validation::present;
use machinery_schema::Ref;
use machinery_schema::leaf::go_quote;
use std::collections::BTreeMap;

/// The deepest folder of a path in which others are looked for: a pod has paths of thousands of levels.
const MAX_DEPTH: usize = 64;

/// A path and where it comes from.
#[derive(Debug, Clone)]
struct Projected<'a> {
    path: &'a str,
    /// Of a volume with several sources alone.
    source: String,
}

/// Paths seen so far, each with `/` behind it, so that those in a folder stand together.
#[derive(Default)]
struct Paths<'a> {
    all: Vec<Projected<'a>>,
    by_path: BTreeMap<String, Vec<usize>>,
}

/// Warns of volumes with paths that are the same, or one in the other, and of projections without a source.
pub(super) fn volumes(warnings: &mut Warnings, spec: Ref<'_>) {
    for volume in spec.list("volumes") {
        let name = go_quote(volume.str("name"));
        let named = |kind: &str, source: Ref<'_>, member: &str| {
            format!("volume {name} ({kind} {})", go_quote(source.str(member)))
        };
        if let Some(source) = present(volume, "configMap") {
            one_source(warnings, &named("ConfigMap", source, "name"), source);
        }
        if let Some(source) = present(volume, "secret") {
            one_source(warnings, &named("Secret", source, "secretName"), source);
        }
        if let Some(source) = present(volume, "downwardAPI") {
            one_source(warnings, &format!("volume {name} (DownwardAPI)"), source);
        }
        if let Some(source) = present(volume, "projected") {
            projected(warnings, &format!("volume {name} (Projected)"), source);
        }
    }
}

fn one_source(warnings: &mut Warnings, volume: &str, source: Ref<'_>) {
    let mut paths = Paths::default();
    for path in items(source, "") {
        paths.look_at(warnings, volume, path);
    }
}

fn projected(warnings: &mut Warnings, volume: &str, projected: Ref<'_>) {
    let mut paths = Paths::default();
    for source in projected.list("sources") {
        if source.entries().all(|(_, own)| own.is_null()) {
            warnings.say(format!("{volume} has no sources provided"));
        }
        for path in paths_of(source) {
            paths.look_at(warnings, volume, path);
        }
    }
}

/// Paths of one source of a projected volume.
fn paths_of(source: Ref<'_>) -> Vec<Projected<'_>> {
    let named = |kind: &str, own: Ref<'_>| format!("{kind} {}", go_quote(own.str("name")));
    let one = |path, source: &str| Projected {
        path,
        source: source.to_owned(),
    };
    if let Some(own) = present(source, "configMap") {
        items(own, &named("ConfigMap", own))
    } else if let Some(own) = present(source, "secret") {
        items(own, &named("Secret", own))
    } else if let Some(own) = present(source, "downwardAPI") {
        items(own, "DownwardAPI")
    } else if let Some(own) = present(source, "serviceAccountToken") {
        vec![one(own.str("path"), "ServiceAccountToken")]
    } else if let Some(own) = present(source, "clusterTrustBundle") {
        let member = if present(own, "name").is_some() {
            "name"
        } else {
            "signerName"
        };
        let shown = format!("ClusterTrustBundle {}", go_quote(own.str(member)));
        vec![one(own.str("path"), &shown)]
    } else if let Some(own) = present(source, "podCertificate") {
        let parts = [
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        ];
        parts.map(|(member, shown)| one(own.str(member), shown)).into()
    } else {
        Vec::new()
    }
}

fn items<'a>(source: Ref<'a>, shown: &str) -> Vec<Projected<'a>> {
    let paths = source.list("items").map(|item| item.str("path"));
    let projected = |path| Projected {
        path,
        source: shown.to_owned(),
    };
    paths.map(projected).collect()
}

impl<'a> Paths<'a> {
    /// Warns of the earlier paths that this one is in the way of.
    fn look_at(&mut self, warnings: &mut Warnings, volume: &str, own: Projected<'a>) {
        let path = own.path.trim_end_matches('/');
        if path.is_empty() || warnings.is_full() {
            return;
        }
        let folder = format!("{path}/");
        let own = Projected { path, ..own };
        for other in self.in_the_way(&folder) {
            let (own, other) = (own.shown(), self.all[other].shown());
            warnings.say(format!("{volume}: overlapping paths: {own} with {other}"));
        }
        // Of a path that stands many times in one source all but the first would be warned of in the same words.
        let known = self.by_path.entry(folder).or_default();
        if known.iter().all(|at| self.all[*at].source != own.source) {
            known.push(self.all.len());
            self.all.push(own);
        }
    }

    /// Earlier paths in a folder, or whose folder it is in, in order.
    fn in_the_way(&self, folder: &str) -> Vec<usize> {
        let inside = self.by_path.range(folder.to_owned()..);
        let inside = inside.take_while(|(other, _)| other.starts_with(folder));
        let slashes = folder.match_indices('/').take(MAX_DEPTH);
        let above = slashes
            .map(|(at, _)| &folder[..=at])
            .filter(|above| above.len() < folder.len())
            .filter_map(|above| self.by_path.get(above));
        let mut found: Vec<usize> = inside
            .map(|(_, own)| own)
            .chain(above)
            .flatten()
            .copied()
            .collect();
        found.sort_unstable();
        found
    }
}

impl Projected<'_> {
    fn shown(&self) -> String {
        match self.source.as_str() {
            "" => go_quote(self.path),
            source => format!("{} ({source})", go_quote(self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::core::pod::warnings;
    use crate::shared::validation::Path;
    use machinery_schema::Tree;

    #[track_caller]
    fn check(volume: &str, expected: &[&str]) {
        let pod = format!(r#"{{"spec":{{"volumes":[{volume}]}}}}"#);
        let found = warnings::of(&Path::ROOT, Tree::from_json(&pod).unwrap().root());
        assert_eq!(found, expected, "{volume}");
    }

    /// Warnings of kube-apiserver for these volumes.
    #[test]
    fn paths_that_hide_each_other_are_warned_of() {
        check(
            r#"{"name":"v","configMap":{"name":"c","items":[{"path":"a/b"},{"path":"a"},{"path":"ab"}]}}"#,
            &[r#"volume "v" (ConfigMap "c"): overlapping paths: "a" with "a/b""#],
        );
        check(
            r#"{"name":"v","secret":{"secretName":"s","items":[{"path":"a"},{"path":"a/"},{"path":"a/b"}]}}"#,
            &[
                r#"volume "v" (Secret "s"): overlapping paths: "a" with "a""#,
                r#"volume "v" (Secret "s"): overlapping paths: "a/b" with "a""#,
            ],
        );
        check(
            r#"{"name":"v","projected":{"sources":[{},{"downwardAPI":{"items":[{"path":"t"}]}},{"serviceAccountToken":{"path":"t"}}]}}"#,
            &[
                r#"volume "v" (Projected) has no sources provided"#,
                r#"volume "v" (Projected): overlapping paths: "t" (ServiceAccountToken) with "t" (DownwardAPI)"#,
            ],
        );
    }
}
