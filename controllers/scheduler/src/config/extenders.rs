//! Extenders: other servers that are asked about nodes.

use super::document::{Document, Object, go_duration};
use machinery_meta::{FieldError, FieldPath, syntax};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Extenders at most: each is asked about every pod that it is interested in, one after the other.
const MAX_EXTENDERS: usize = 16;
/// Time that a call may take by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a call may take at most: nothing else is placed meanwhile.
const MAX_TIMEOUT: Duration = Duration::from_mins(5);

/// An extender, complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtenderConfig {
    pub url_prefix: Box<str>,
    pub filter_verb: Box<str>,
    pub prioritize_verb: Box<str>,
    pub bind_verb: Box<str>,
    pub preempt_verb: Box<str>,
    pub weight: i64,
    pub enable_https: bool,
    pub tls: Option<ExtenderTls>,
    pub timeout: Duration,
    pub node_cache_capable: bool,
    /// Extended resources whose pods concern it; all pods do where there are none.
    pub managed_resources: BTreeSet<Box<str>>,
    pub ignorable: bool,
}

/// Certificates of the connections to an extender: files, or data in base64.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    pub insecure: bool,
    pub server_name: Box<str>,
    pub cert_file: Box<str>,
    pub key_file: Box<str>,
    pub ca_file: Box<str>,
    pub cert_data: Box<str>,
    pub key_data: Box<str>,
    pub ca_data: Box<str>,
}

impl fmt::Debug for ExtenderTls {
    /// Prints all but the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtenderTls")
            .field("insecure", &self.insecure)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// Extenders in the order of asking, and the resources that they take out of the scheduler's hands.
#[derive(Debug, Default)]
pub(super) struct Extenders {
    pub(super) all: Vec<ExtenderConfig>,
    pub(super) ignored_resources: BTreeSet<Box<str>>,
}

pub(super) fn read(document: &mut Document, object: &mut Object<'_>, path: &FieldPath) -> Extenders {
    let path = path.child("extenders");
    let items = object.list(document, "extenders");
    if items.len() > MAX_EXTENDERS {
        let problem = FieldError::too_many(&path, items.len(), MAX_EXTENDERS);
        document.problems.push(problem);
        return Extenders::default();
    }
    let mut read = Extenders::default();
    let mut managed = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let object = document.object(&path.index(at), item);
        let own = extender(document, object, &mut managed, &mut read.ignored_resources);
        read.all.push(own);
    }
    let binders = read.all.iter().filter(|own| !own.bind_verb.is_empty()).count();
    if binders > 1 {
        let found = format!("found {binders} extenders implementing bind");
        document.invalid_text(&path, &found, "only one extender can implement bind");
    }
    // Those that may fail come last, as upstream has them.
    read.all.sort_by_key(|own| own.ignorable);
    read
}

fn extender(
    document: &mut Document,
    mut object: Object<'_>,
    managed: &mut BTreeSet<Box<str>>,
    ignored: &mut BTreeSet<Box<str>>,
) -> ExtenderConfig {
    let own = ExtenderConfig {
        url_prefix: object.string(document, "urlPrefix"),
        filter_verb: object.string(document, "filterVerb"),
        prioritize_verb: object.string(document, "prioritizeVerb"),
        bind_verb: object.string(document, "bindVerb"),
        preempt_verb: object.string(document, "preemptVerb"),
        weight: object.integer(document, "weight", 0),
        enable_https: object.boolean(document, "enableHTTPS"),
        tls: tls(document, &mut object),
        timeout: timeout(document, &mut object),
        node_cache_capable: object.boolean(document, "nodeCacheCapable"),
        ignorable: object.boolean(document, "ignorable"),
        managed_resources: managed_resources(document, &mut object, managed, ignored),
    };
    if !own.prioritize_verb.is_empty() && own.weight <= 0 {
        let detail = "must have a positive weight applied to it";
        document.invalid(&object.path("weight"), own.weight, detail);
    }
    object.end(document);
    own
}

fn tls(document: &mut Document, extender: &mut Object<'_>) -> Option<ExtenderTls> {
    extender.take("tlsConfig")?;
    let mut object = extender.object(document, "tlsConfig");
    let own = ExtenderTls {
        insecure: object.boolean(document, "insecure"),
        server_name: object.string(document, "serverName"),
        cert_file: object.string(document, "certFile"),
        key_file: object.string(document, "keyFile"),
        ca_file: object.string(document, "caFile"),
        cert_data: object.long_string(document, "certData"),
        key_data: object.long_string(document, "keyData"),
        ca_data: object.long_string(document, "caData"),
    };
    object.end(document);
    Some(own)
}

fn timeout(document: &mut Document, extender: &mut Object<'_>) -> Duration {
    let path = extender.path("httpTimeout");
    let text = extender.string(document, "httpTimeout");
    if text.is_empty() {
        return DEFAULT_TIMEOUT;
    }
    match go_duration(&text) {
        Some(Duration::ZERO) => DEFAULT_TIMEOUT,
        Some(own) if own <= MAX_TIMEOUT => own,
        Some(_) => {
            let detail = format!("must be less than or equal to {}s", MAX_TIMEOUT.as_secs());
            document.invalid_text(&path, &text, &detail);
            DEFAULT_TIMEOUT
        }
        None => {
            document.invalid_text(&path, &text, "must be a duration that is not negative");
            DEFAULT_TIMEOUT
        }
    }
}

fn managed_resources(
    document: &mut Document,
    extender: &mut Object<'_>,
    known: &mut BTreeSet<Box<str>>,
    ignored: &mut BTreeSet<Box<str>>,
) -> BTreeSet<Box<str>> {
    let path = extender.path("managedResources");
    let mut own = BTreeSet::new();
    for (at, item) in extender.list(document, "managedResources").iter().enumerate() {
        let mut object = document.object(&path.index(at), item);
        let name_path = object.path("name");
        let name = object.string(document, "name");
        for problem in extended_resource(&name) {
            document.invalid_text(&name_path, &name, &problem);
        }
        if !known.insert(name.clone()) {
            document.invalid_text(&name_path, &name, "duplicate extender managed resource name");
        }
        if object.boolean(document, "ignoredByScheduler") {
            ignored.insert(name.clone());
        }
        object.end(document);
        own.insert(name);
    }
    own
}

/// Problems of a name that should be an extended resource's.
fn extended_resource(name: &str) -> Vec<String> {
    let problems = syntax::qualified_name(name);
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    let is_quota =
        name.starts_with("requests.") || !syntax::qualified_name(&format!("requests.{name}")).is_empty();
    match problems.is_empty() && (is_native || is_quota) {
        true => vec!["is an invalid extended resource name".to_owned()],
        false => problems,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_of_an_extender_is_a_duration_of_go() {
        let read = |text: &str| go_duration(text).map(|own| own.as_millis());
        assert_eq!(read("1m30s"), Some(90_000));
        assert_eq!(read("1.5s"), Some(1_500));
        assert_eq!(read("100ms"), Some(100));
        assert_eq!(read("0"), Some(0));
        for wrong in ["", "5", "s", "-1s", "1x", "1s1", "1e99h", "..s"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
