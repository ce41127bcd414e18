//! Projected volumes: files of several sources in one folder.

use super::files::{downward_file, items, mode, required};
use super::paths::local_file;
use crate::engine::metadata::MAX_ANNOTATIONS_BYTES;
use crate::shared::validation::{
    Errors, Path, label_selector, signer_name, trust_bundle_name_problems, trust_bundle_signer,
};
use machinery_meta::field::Shown;
use machinery_meta::syntax;
use machinery_schema::Ref;
use std::collections::HashSet;

/// Bounds of a service account token's life.
const TOKEN_SECONDS: (i64, i64) = (10 * 60, 1 << 32);
/// The shortest life one may request a pod's certificate, the longest, and the longest of Kubernetes' own signers.
const CERTIFICATE_SECONDS: (i64, i64, i64) = (3600, 91 * 24 * 3600, 24 * 3600);
const KEY_TYPES: [&str; 6] = [
    "RSA3072",
    "RSA4096",
    "ECDSAP256",
    "ECDSAP384",
    "ECDSAP521",
    "ED25519",
];
const CERTIFICATE_FILES: [&str; 3] = ["credentialBundlePath", "keyPath", "certificateChainPath"];

/// The sources, in the order in which upstream looks for them.
const SOURCES: [&str; 6] = [
    "secret",
    "configMap",
    "downwardAPI",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
];

/// The whole volume.
pub(super) fn projected(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    mode(errors, path, source, "defaultMode");
    user(errors, path, source, "defaultUser");
    let sources = path.child("sources");
    let mut files = Files(HashSet::new());
    for (index, projection) in source.list("sources").enumerate() {
        let at = sources.index(index);
        let mut count = 0;
        for name in SOURCES {
            if let Some(own) = projection.get(name).filter(|own| !own.is_null()) {
                count += 1;
                one_source(errors, path, (&at.child(name), own), name, &mut files);
            }
        }
        if count > 1 {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

/// The files that are written so far: two sources must not write the same.
struct Files<'a>(HashSet<&'a str>);

impl<'a> Files<'a> {
    fn add(&mut self, errors: &mut Errors, volume: &Path<'_>, file: &'a str, shown: &str) {
        if !file.is_empty() && !self.0.insert(file) {
            errors.invalid(volume, shown, "conflicting duplicate paths");
        }
    }
}

fn one_source<'a>(
    errors: &mut Errors,
    volume: &Path<'_>,
    (path, source): (&Path<'_>, Ref<'a>),
    name: &str,
    files: &mut Files<'a>,
) {
    match name {
        "configMap" | "secret" => {
            required(errors, path, source, &["name"]);
            items(errors, &path.child("items"), source);
            for item in source.list("items") {
                files.add(errors, volume, item.str("path"), source.str("name"));
            }
        }
        "downwardAPI" => {
            for item in source.list("items") {
                downward_file(errors, path, item);
                files.add(errors, volume, item.str("path"), item.str("path"));
            }
        }
        "serviceAccountToken" => service_account_token(errors, volume, path, source),
        "clusterTrustBundle" => {
            cluster_trust_bundle(errors, path, source);
            let file = source.str("path");
            files.add(errors, volume, file, file);
        }
        _ => pod_certificate(errors, volume, (path, source), files),
    }
}

fn service_account_token(errors: &mut Errors, volume: &Path<'_>, path: &Path<'_>, source: Ref<'_>) {
    let at = path.child("expirationSeconds");
    match source.get("expirationSeconds").and_then(Ref::as_i64) {
        None => errors.required(&at, ""),
        Some(seconds) if seconds < TOKEN_SECONDS.0 => {
            errors.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
        }
        Some(seconds) if seconds > TOKEN_SECONDS.1 => {
            errors.invalid(
                &at,
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
        Some(_) => {}
    }
    // Upstream names the volume's path here, not the source's.
    let at = volume.child("path");
    match source.str("path") {
        "" => errors.required(&at, ""),
        file => local_file(errors, &at, file),
    }
    user(errors, path, source, "user");
}

fn cluster_trust_bundle(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let text = |name: &str| source.get(name).and_then(Ref::as_str);
    match (text("name"), text("signerName")) {
        (None, None) => errors.required(path, "either name or signerName must be specified"),
        (Some(_), Some(_)) => {
            let shown = Shown(source.to_json());
            errors.invalid(path, shown, "only one of name and signerName may be used");
        }
        (Some(name), None) => bundle_by_name(errors, path, source, name),
        (None, Some(signer)) => {
            let at = path.child("signerName");
            if signer.is_empty() {
                errors.required(&at, "must be a valid signer name");
            }
            signer_name(errors, &at, signer);
            if let Some(selector) = source.get("labelSelector") {
                label_selector(errors, &path.child("labelSelector"), selector);
            }
        }
    }
    if source.str("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    user(errors, path, source, "user");
    local_file(errors, &path.child("path"), source.str("path"));
}

fn bundle_by_name(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, name: &str) {
    let at = path.child("name");
    if name.is_empty() {
        errors.required(&at, "must be a valid object name");
    }
    for problem in trust_bundle_name_problems(&trust_bundle_signer(name), name, false) {
        errors.invalid(
            &at,
            name,
            format!("not a valid clustertrustbundlename: {problem}"),
        );
    }
    if let Some(selector) = source.get("labelSelector").filter(|own| !own.is_null()) {
        errors.invalid(
            &path.child("labelSelector"),
            Shown(selector.to_json()),
            "labelSelector must be unset if name is specified",
        );
    }
}

fn pod_certificate<'a>(
    errors: &mut Errors,
    volume: &Path<'_>,
    (path, source): (&Path<'_>, Ref<'a>),
    files: &mut Files<'a>,
) {
    let signer = source.str("signerName");
    signer_name(errors, &path.child("signerName"), signer);
    user_annotations(errors, &path.child("userAnnotations"), source);
    user(errors, path, source, "user");
    let key = source.str("keyType");
    if !KEY_TYPES.contains(&key) {
        errors.not_supported(&path.child("keyType"), key, &KEY_TYPES);
    }
    if let Some(seconds) = source.get("maxExpirationSeconds").and_then(Ref::as_i64) {
        let (shortest, longest, own) = CERTIFICATE_SECONDS;
        let longest = if is_kubernetes_signer(signer) {
            own
        } else {
            longest
        };
        let at = path.child("maxExpirationSeconds");
        if seconds < shortest {
            errors.invalid(
                &at,
                seconds,
                format!("if provided, maxExpirationSeconds must be >= {shortest}"),
            );
        }
        if seconds > longest {
            errors.invalid(
                &at,
                seconds,
                format!("if provided, maxExpirationSeconds must be <= {longest}"),
            );
        }
    }
    let mut count = 0;
    for name in CERTIFICATE_FILES {
        let file = source.str(name);
        if !file.is_empty() {
            count += 1;
            local_file(errors, &path.child(name), file);
            files.add(errors, volume, file, file);
        }
    }
    if count == 0 {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(path, detail);
    }
}

fn is_kubernetes_signer(signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// Keys of annotations for a signer have a domain.
fn user_annotations(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>) {
    let mut bytes = 0;
    for (key, value) in source.get("userAnnotations").into_iter().flat_map(Ref::entries) {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        let key = key.to_lowercase();
        let before = errors.len();
        if key.is_empty() {
            errors.required(path, "");
        } else {
            errors.all_invalid(path, &key, syntax::qualified_name(&key));
        }
        if errors.len() == before && !key.contains('/') {
            let detail = r#"must be a domain-prefixed key (such as "acme.io/foo")"#;
            errors.invalid(path, key.as_str(), detail);
        }
    }
    if bytes > MAX_ANNOTATIONS_BYTES {
        errors.too_long(path, MAX_ANNOTATIONS_BYTES);
    }
}

fn user(errors: &mut Errors, path: &Path<'_>, source: Ref<'_>, name: &str) {
    if let Some(id) = source.get(name).and_then(Ref::as_i64) {
        for problem in syntax::user_id(id) {
            errors.invalid(&path.child(name), id, problem);
        }
    }
}
