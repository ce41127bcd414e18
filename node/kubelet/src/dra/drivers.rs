//! Drivers that are registered. A driver may have several plugins at once, as while it is updated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use machinery_runtime::CancellationToken;
use node_plugin_api::calls::Transport;
use node_plugin_api::dra::DraService;
use parking_lot::Mutex;

/// A plugin of a driver.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) driver: String,
    /// Socket of its service.
    pub(super) endpoint: PathBuf,
    /// Socket at which it has registered.
    pub(super) registered_at: PathBuf,
    pub(super) service: DraService,
    /// The connection, while there is one.
    live: Mutex<Option<Transport>>,
    /// Cancelled when it is used no more.
    pub(super) gone: CancellationToken,
}

impl Plugin {
    /// A plugin without a connection.
    pub(super) fn new(plugin: &crate::plugins::handlers::Plugin, service: DraService) -> Self {
        Self {
            driver: plugin.name.clone(),
            endpoint: plugin.endpoint.clone(),
            registered_at: plugin.registered_at.clone(),
            service,
            live: Mutex::default(),
            gone: CancellationToken::new(),
        }
    }

    /// Its connection has come, or ended.
    pub(super) fn set_live(&self, live: Option<Transport>) {
        *self.live.lock() = live;
    }

    /// Its connection, while there is one.
    pub(super) fn live(&self) -> Option<Transport> {
        self.live.lock().clone()
    }
}

/// Drivers by name, each with its plugins in the order in which they have come.
#[derive(Debug, Default)]
pub(super) struct Drivers(Mutex<BTreeMap<String, Vec<Arc<Plugin>>>>);

impl Drivers {
    /// A plugin is there.
    ///
    /// # Errors
    /// Another one of the driver has its endpoint.
    pub(super) fn add(&self, plugin: Arc<Plugin>) -> Result<(), String> {
        let mut all = self.0.lock();
        let own = all.entry(plugin.driver.clone()).or_default();
        if own.iter().any(|other| other.endpoint == plugin.endpoint) {
            return Err(format!(
                "endpoint {} already registered for DRA driver plugin {}",
                plugin.endpoint.display(),
                plugin.driver
            ));
        }
        own.push(plugin);
        Ok(())
    }

    /// The plugin that has registered at a socket has gone; returns it, where it was used.
    pub(super) fn remove(&self, driver: &str, registered_at: &PathBuf) -> Option<Arc<Plugin>> {
        let mut all = self.0.lock();
        let own = all.get_mut(driver)?;
        let at = own
            .iter()
            .position(|plugin| plugin.registered_at == *registered_at)?;
        let removed = own.remove(at);
        if own.is_empty() {
            all.remove(driver);
        }
        Some(removed)
    }

    /// Returns the newest plugin of a driver that has a connection, or the newest at all.
    ///
    /// # Errors
    /// Upstream's words that there is none.
    pub(super) fn get(&self, driver: &str) -> Result<Arc<Plugin>, String> {
        if driver.is_empty() {
            return Err("DRA driver name is empty".to_owned());
        }
        let all = self.0.lock();
        let own = all.get(driver).map_or(&[][..], Vec::as_slice);
        let live = own.iter().rev().find(|plugin| plugin.live().is_some());
        let found = live.or_else(|| own.last());
        found
            .cloned()
            .ok_or_else(|| format!("DRA driver {driver} is not registered"))
    }

    /// Reports whether a plugin of a driver has a connection.
    pub(super) fn is_usable(&self, driver: &str) -> bool {
        let all = self.0.lock();
        let mut own = all.get(driver).into_iter().flatten();
        own.any(|plugin| plugin.live().is_some())
    }
}

/// Returns the version of the service by which a plugin is used: the first of its own that the agent has.
///
/// # Errors
/// It has none. Words are upstream's.
pub(super) fn choose_service(plugin: &crate::plugins::handlers::Plugin) -> Result<DraService, String> {
    let known = |name: &String| DraService::ALL.into_iter().find(|own| own.name() == name);
    if let Some(chosen) = plugin.versions.iter().find_map(known) {
        return Ok(chosen);
    }
    let why = match plugin.versions.is_empty() {
        true => "empty list of supported gRPC services (aka supported versions)".to_owned(),
        false => {
            let list = |names: &mut dyn Iterator<Item = &str>| {
                names
                    .map(|name| format!("{name:?}"))
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            format!(
                "none of services supported by the plugin ([{}]) are supported by the kubelet ([{}])",
                list(&mut plugin.versions.iter().map(String::as_str)),
                list(&mut DraService::ALL.iter().map(|own| own.name()))
            )
        }
    };
    Err(format!(
        "invalid supported gRPC versions of DRA driver plugin {} at endpoint {}: {why}",
        plugin.name,
        plugin.endpoint.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::handlers;
    use futures::FutureExt as _;
    use node_plugin_api::calls::unknown;

    fn described(name: &str, number: u32, versions: &[&str]) -> handlers::Plugin {
        handlers::Plugin {
            name: name.to_owned(),
            endpoint: format!("/plugins/{number}.sock").into(),
            versions: versions.iter().map(|own| (*own).to_owned()).collect(),
            registered_at: format!("/registry/{number}-reg.sock").into(),
        }
    }

    fn plugin(number: u32) -> Arc<Plugin> {
        Arc::new(Plugin::new(&described("d", number, &[]), DraService::V1))
    }

    fn transport() -> Transport {
        Transport::new(tower::service_fn(|_| async { Ok(unknown()) }.boxed()))
    }

    #[track_caller]
    fn check_versions(versions: &[&str], expected: Result<DraService, &str>) {
        let chosen = choose_service(&described("d", 1, versions));
        assert_eq!(
            chosen.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|why| *why)
        );
    }

    /// Cases of upstream's `TestRegistrationHandler` and its validation.
    #[test]
    fn driver_is_used_by_the_first_service_that_both_have() {
        check_versions(&["v1.DRAPlugin"], Ok(DraService::V1));
        check_versions(&["v1beta1.DRAPlugin", "v1.DRAPlugin"], Ok(DraService::V1Beta1));
        check_versions(
            &["v1.DRAResourceHealth", "v1.DRAPlugin", "v9.DRAPlugin"],
            Ok(DraService::V1),
        );
        let of = "invalid supported gRPC versions of DRA driver plugin d at endpoint /plugins/1.sock: ";
        let none = format!("{of}empty list of supported gRPC services (aka supported versions)");
        check_versions(&[], Err(&none));
        let other = format!(
            "{of}none of services supported by the plugin ([\"1.0.0\" \"v1\"]) are supported by the kubelet \
             ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])"
        );
        check_versions(&["1.0.0", "v1"], Err(&other));
    }

    #[test]
    fn driver_is_called_by_its_newest_plugin_that_is_connected() {
        let drivers = Drivers::default();
        assert_eq!(drivers.get("d").unwrap_err(), "DRA driver d is not registered");
        assert_eq!(drivers.get("").unwrap_err(), "DRA driver name is empty");
        let all: Vec<_> = (1..=3).map(plugin).collect();
        all.iter().for_each(|own| drivers.add(own.clone()).unwrap());
        let chosen = || drivers.get("d").unwrap().endpoint.display().to_string();
        assert_eq!(
            (chosen(), drivers.is_usable("d")),
            ("/plugins/3.sock".to_owned(), false)
        );
        all[0].set_live(Some(transport()));
        all[1].set_live(Some(transport()));
        assert_eq!(
            (chosen(), drivers.is_usable("d")),
            ("/plugins/2.sock".to_owned(), true)
        );
        drivers.remove("d", &all[1].registered_at).unwrap();
        assert_eq!(chosen(), "/plugins/1.sock");
    }

    #[test]
    fn endpoint_of_a_plugin_is_taken_by_no_other_and_lost_to_none() {
        let drivers = Drivers::default();
        drivers.add(plugin(1)).unwrap();
        let mut other = described("d", 1, &[]);
        other.registered_at = "/registry/thief.sock".into();
        let other = Arc::new(Plugin::new(&other, DraService::V1));
        assert_eq!(
            drivers.add(other.clone()).unwrap_err(),
            "endpoint /plugins/1.sock already registered for DRA driver plugin d"
        );
        assert!(drivers.remove("d", &other.registered_at).is_none());
        drivers.get("d").unwrap();
    }
}
