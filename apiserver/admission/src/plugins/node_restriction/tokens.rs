//! Tokens of the accounts of the node's pods, for audiences that those pods mount.

use super::{NodeRequest, NodeRestriction, Stored, Verdict, missing, refuse};
use crate::permissions::Right;
use crate::{AdmissionError, Operation};
use machinery_api::pod::PodView;
use machinery_schema::{Ref, Tree};

/// Volume sources of old that a CSI driver serves today, and which.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

impl NodeRestriction {
    pub(super) async fn service_account(&self, asked: NodeRequest<'_>) -> Verdict {
        let request = asked.request;
        if request.operation != Operation::Create || request.subresource != "token" {
            return Ok(());
        }
        let token = asked.written()?;
        let part = |name: &str| token.str_at(&["spec", "boundObjectRef", name]);
        let (name, uid) = (part("name"), part("uid"));
        if part("apiVersion") != "v1" || part("kind") != "Pod" || name.is_empty() {
            return refuse("node requested token not bound to a pod");
        }
        if uid.is_empty() {
            return refuse("node requested token with a pod binding without a uid");
        }
        let pod = self.pod(request.namespace, name).await?;
        if pod.found.header.uid.0 != uid {
            return refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if PodView::new(pod.tree.root()).node_name() != asked.node {
            return refuse("node requested token bound to a pod scheduled on a different node");
        }
        self.audience(asked, token, &pod).await
    }

    /// `ServiceAccountNodeAudienceRestriction`: the one audience is one that the pod mounts or the node has a right to.
    async fn audience(&self, asked: NodeRequest<'_>, token: &Tree, pod: &Stored) -> Verdict {
        let audiences = token.at(&["spec", "audiences"]);
        let mut audiences = audiences.into_iter().flat_map(Ref::items);
        let audience = audiences.next().and_then(Ref::as_str).unwrap_or_default();
        if audiences.next().is_some() {
            return refuse("node may only request 0 or 1 audiences");
        }
        let request = asked.request;
        match self.mounts_audience(request.namespace, pod, audience).await {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => return refuse(format!("error validating audience {audience:?}: {error}")),
        }
        let right = Right {
            verb: "request-serviceaccounts-token-audience",
            group: request.group,
            resource: audience,
            namespace: request.namespace,
            name: request.name,
        };
        if self.permissions.has(request.user, right).await? {
            return Ok(());
        }
        refuse(format!(
            "{} is not authorized to request tokens for audience {audience:?}",
            request.user.name
        ))
    }

    /// Reports whether a volume of the pod needs tokens for the audience. A failed read is an error only if no volume
    /// does.
    async fn mounts_audience(
        &self,
        namespace: &str,
        pod: &Stored,
        audience: &str,
    ) -> Result<bool, AdmissionError> {
        let view = PodView::new(pod.tree.root());
        let mut problem = None;
        for volume in view.volumes() {
            let projected = volume.get("projected");
            let mut sources = projected
                .into_iter()
                .flat_map(|projected| projected.list("sources"));
            if sources.any(|source| {
                let token = source.get("serviceAccountToken");
                token.is_some_and(|token| token.str("audience") == audience)
            }) {
                return Ok(true);
            }
            match self.driver_has_audience(namespace, view, volume, audience).await {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        problem.map_or(Ok(false), Err)
    }

    async fn driver_has_audience(
        &self,
        namespace: &str,
        pod: PodView<'_>,
        volume: Ref<'_>,
        audience: &str,
    ) -> Result<bool, AdmissionError> {
        let driver = if let Some(claim) = pod.claim_of(volume) {
            self.driver_of_claim(namespace, &claim).await?
        } else if let Some(csi) = volume.get("csi") {
            csi.str("driver").to_owned()
        } else {
            migrated(volume)
        };
        if driver.is_empty() {
            return Ok(false);
        }
        let found = self
            .stored("storage.k8s.io", "csidrivers", "CSIDriver", "", &driver)
            .await?
            .ok_or_else(|| missing("storage.k8s.io", "csidriver", &driver))?;
        let requests = found.tree.at(&["spec", "tokenRequests"]);
        let mut requests = requests.into_iter().flat_map(Ref::items);
        Ok(requests.any(|own| own.str("audience") == audience))
    }

    /// The driver behind a claim: its volume's own, or the one that serves the volume's kind today.
    async fn driver_of_claim(&self, namespace: &str, claim: &str) -> Result<String, AdmissionError> {
        let found = self
            .stored(
                "",
                "persistentvolumeclaims",
                "PersistentVolumeClaim",
                namespace,
                claim,
            )
            .await?
            .ok_or_else(|| missing("", "persistentvolumeclaim", claim))?;
        let name = found.tree.str_at(&["spec", "volumeName"]);
        let volume = self
            .stored("", "persistentvolumes", "PersistentVolume", "", name)
            .await?
            .ok_or_else(|| missing("", "persistentvolume", name))?;
        let Some(spec) = volume.tree.get("spec") else {
            return Ok(String::new());
        };
        Ok(match spec.get("csi") {
            Some(csi) => csi.str("driver").to_owned(),
            None => migrated(spec),
        })
    }
}

fn migrated(source: Ref<'_>) -> String {
    MIGRATED
        .iter()
        .find(|(own, _)| source.get(own).is_some())
        .map(|(_, driver)| (*driver).to_owned())
        .unwrap_or_default()
}
