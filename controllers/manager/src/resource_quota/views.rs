//! Projections of quotas and of the objects that they count.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use machinery_client::{Index, Projection};
use machinery_meta::ObjectHeader;
use machinery_semantics::quota::{self, Measured, Quota};
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
        let quota: ResourceQuota = serde_json::from_slice(json)?;
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
    OfService: Service, quota::service;
    OfVolumeClaim: PersistentVolumeClaim, quota::volume_claim;
    OfResourceClaim: ResourceClaim, quota::resource_claim;
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
        let object: M::Object = serde_json::from_slice(json)?;
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
        let class: DeviceClass = serde_json::from_slice(json)?;
        let name = class.spec.and_then(|spec| spec.extended_resource_name);
        Ok(Self {
            extended_resource: name.map(String::into_boxed_str),
        })
    }
}
