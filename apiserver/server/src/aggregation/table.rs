//! All APIServices, as requests and discovery look at them.

use super::documents::Documents;
use crate::reader::read_object;
use apiserver_egress::{ClientIdentity, ExtensionTarget, TargetError, Trusted};
use apiserver_endpoints::{ExtensionGroups, ExtensionVersion, Priority};
use apiserver_registry::Entry;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery_runtime::LogThrottle;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::Notify;

/// The group that this server answers whatever APIServices say.
const OWN_GROUP: &str = "apiregistration.k8s.io";
const HTTPS: u16 = 443;

/// One APIService.
#[derive(Debug)]
pub(crate) struct ApiService {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) priority: Priority,
    /// Its condition `Available` is `True`.
    pub(crate) is_available: bool,
    /// The server that answers in place of this one.
    pub(crate) extension: Option<Arc<Extension>>,
}

/// An extension as one APIService names it. It stays the same as long as its service and its trust do, whatever becomes of the
/// APIService's status.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    place: Place,
    pub(crate) target: Result<Arc<ExtensionTarget>, TargetError>,
    pub(crate) documents: Documents,
    /// The APIService was changed.
    pub(crate) changed: Notify,
    /// Lines of the log about requests that it did not answer.
    pub(super) log: LogThrottle,
}

/// The part of a spec that a connection depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) service: String,
    pub(crate) port: u16,
    ca_bundle: String,
    takes_any_certificate: bool,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Object {
    spec: Spec,
    status: Status,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    group: String,
    version: String,
    group_priority_minimum: i64,
    version_priority: i64,
    service: Option<ServiceReference>,
    ca_bundle: Option<String>,
    #[serde(rename = "insecureSkipTLSVerify")]
    insecure_skip_tls_verify: bool,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct ServiceReference {
    namespace: String,
    name: String,
    port: Option<u16>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<StatusCondition>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct StatusCondition {
    r#type: String,
    status: String,
}

impl ApiService {
    /// Reads a stored APIService; what is known of its extension is kept where it is still the same.
    ///
    /// # Errors
    /// The object cannot be read.
    pub(super) fn read(
        entry: &Entry,
        known: Option<&Self>,
        identity: &Arc<ClientIdentity>,
    ) -> Result<Self, serde_json::Error> {
        let name = entry.record.header.key.name.to_string();
        let Object { spec, status } = serde_json::from_slice(&read_object(entry).json)?;
        let is_available = status
            .conditions
            .iter()
            .flatten()
            .any(|own| own.r#type == "Available" && own.status == "True");
        let place = spec.service.as_ref().map(|service| Place {
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            port: service.port.unwrap_or(HTTPS),
            ca_bundle: spec.ca_bundle.clone().unwrap_or_default(),
            takes_any_certificate: spec.insecure_skip_tls_verify,
        });
        let known = known.and_then(|known| known.extension.as_ref());
        let extension = place.filter(|_| spec.group != OWN_GROUP).map(|place| {
            match known.filter(|known| known.place == place) {
                Some(known) => Arc::clone(known),
                None => Arc::new(Extension::new(&name, &spec, place, identity)),
            }
        });
        Ok(Self {
            name,
            priority: Priority {
                group: spec.group_priority_minimum,
                version: spec.version_priority,
            },
            group: spec.group,
            version: spec.version,
            is_available,
            extension,
        })
    }
}

impl Extension {
    fn new(name: &str, spec: &Spec, place: Place, identity: &Arc<ClientIdentity>) -> Self {
        let bundle = STANDARD.decode(&place.ca_bundle).unwrap_or_default();
        let trusted = match place.takes_any_certificate {
            true => Trusted::Any,
            false => Trusted::Bundle(&bundle),
        };
        let service = (place.namespace.as_str(), place.service.as_str());
        Self {
            name: name.to_owned(),
            group: spec.group.clone(),
            version: spec.version.clone(),
            target: ExtensionTarget::new(service, place.port, trusted, identity).map(Arc::new),
            place,
            documents: Documents::default(),
            changed: Notify::new(),
            log: LogThrottle::default(),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The path below which it answers, without a slash at its end.
    pub(crate) fn root(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Table {
    all: BTreeMap<String, Arc<ApiService>>,
    /// Extensions by group, then by version.
    extensions: HashMap<String, HashMap<String, Arc<ApiService>>>,
}

impl Table {
    pub(super) fn new(all: BTreeMap<String, Arc<ApiService>>) -> Self {
        let mut extensions: HashMap<String, HashMap<_, _>> = HashMap::new();
        for own in all.values().filter(|own| own.extension.is_some()) {
            let versions = extensions.entry(own.group.clone()).or_default();
            versions.insert(own.version.clone(), Arc::clone(own));
        }
        Self { all, extensions }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ApiService>> {
        self.all.values()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<ApiService>> {
        self.all.get(name)
    }

    /// The APIService of the extension that answers a decoded path: its group version and what is below, and its OpenAPI
    /// document.
    pub(super) fn extension_of(&self, path: &str) -> Option<&Arc<ApiService>> {
        if self.extensions.is_empty() {
            return None;
        }
        if let Some(rest) = path.strip_prefix("/api")
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return self.extensions.get("")?.get("v1");
        }
        let (rest, is_document) = match path.strip_prefix("/openapi/v3/apis/") {
            Some(rest) => (rest, true),
            None => (path.strip_prefix("/apis/")?, false),
        };
        let mut parts = rest.splitn(3, '/');
        let (group, version) = (parts.next()?, parts.next()?);
        let found = self.extensions.get(group)?.get(version)?;
        let is_whole = parts.next().is_none();
        // A document of another server's exists where that server says so.
        let is_shown = || {
            let own = found.extension.as_ref();
            own.is_some_and(|own| own.documents.openapi_v3().is_some())
        };
        (!group.is_empty() && (!is_document || (is_whole && is_shown()))).then_some(found)
    }

    /// Groups that discovery shows.
    pub(super) fn shown(&self) -> ExtensionGroups {
        let priority = |own: &Arc<ApiService>| ((own.group.clone(), own.version.clone()), own.priority);
        let extensions = self.all.values().filter_map(|own| {
            let extension = own.extension.as_ref()?;
            let (resources, is_current) = extension.documents.resources();
            Some(ExtensionVersion {
                group: own.group.clone(),
                version: own.version.clone(),
                resources,
                is_current,
                openapi_v3: extension.documents.openapi_v3(),
                openapi_v2: (*extension.documents.openapi_v2())
                    .as_ref()
                    .map(|own| own.part.clone()),
            })
        });
        ExtensionGroups {
            priorities: self.all.values().map(priority).collect(),
            versions: extensions.collect(),
        }
    }
}
