//! Projections of quotas and of the objects that they count.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service, ServiceSpec};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use machinery_client::{Index, Projection};
use machinery_meta::ObjectHeader;
use machinery_semantics::quota::{self, Measured, Quota};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::marker::PhantomData;

/// The projection of a ResourceQuota.
#[derive(Debug)]
pub(crate) struct QuotaView {
    pub(super) quota: Quota,
}

impl Projection for QuotaView {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];
    const KEEP_BYTES: bool = true;

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let quota: ResourceQuota = machinery_client::json::from_slice(json)?;
        Ok(Self {
            quota: Quota::of(&quota),
        })
    }
}

/// A kind whose objects are measured.
pub(crate) trait Measure: Send + Sync + 'static {
    type Object: DeserializeOwned;

    fn measure(object: &Self::Object) -> Measured;
}

macro_rules! measures {
    ($($name:ident: $object:ty, $measure:path;)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Measure for $name {
            type Object = $object;

            fn measure(object: &Self::Object) -> Measured {
                $measure(object)
            }
        }
    )*};
}

measures! {
    OfPod: Pod, quota::pod;
    OfVolumeClaim: PersistentVolumeClaim, quota::volume_claim;
    OfResourceClaim: ResourceClaim, quota::resource_claim;
}

#[derive(Debug)]
pub(crate) struct OfService;

/// A Service without its status: a client that may write that may write a condition without a time, which the type refuses to read.
#[derive(Debug, Deserialize)]
pub(crate) struct ServiceWithoutStatus {
    spec: Option<ServiceSpec>,
}

impl Measure for OfService {
    type Object = ServiceWithoutStatus;

    fn measure(object: &Self::Object) -> Measured {
        quota::service(&Service {
            spec: object.spec.clone(),
            ..Service::default()
        })
    }
}

/// The measure of an object.
#[derive(Debug)]
pub(crate) struct MeasuredView<M> {
    pub(super) measured: Measured,
    of: PhantomData<fn() -> M>,
}

impl<M: Measure> Projection for MeasuredView<M> {
    const INDEXES: &'static [Index<Self>] = &[Index::NAMESPACE];

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let object: M::Object = machinery_client::json::from_slice(json)?;
        Ok(Self {
            measured: M::measure(&object),
            of: PhantomData,
        })
    }
}

/// The extended resource of a DeviceClass.
#[derive(Debug)]
pub(crate) struct DeviceClassView {
    pub(super) extended_resource: Option<Box<str>>,
}

impl Projection for DeviceClassView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let class: DeviceClass = machinery_client::json::from_slice(json)?;
        let name = class.spec.and_then(|spec| spec.extended_resource_name);
        Ok(Self {
            extended_resource: name.map(String::into_boxed_str),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_client::object::object_of;

    #[test]
    fn quota_counts_a_service_whose_condition_has_no_time() {
        let service = r#"{"metadata": {"name": "a", "namespace": "n", "uid": "u"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            "status": {"conditions": [{"type": "a", "status": "True", "reason": "a", "message": "", "lastTransitionTime": null}]}}"#;
        let view = object_of::<MeasuredView<OfService>>(service).unwrap();
        let usage = view.measured.usage(jiff::Timestamp::UNIX_EPOCH);
        let used = |name: &str| usage.0.get(name).map(ToString::to_string);
        assert_eq!(used("services.loadbalancers").as_deref(), Some("1"));
        assert_eq!(used("services.nodeports").as_deref(), Some("1"));
    }
}
