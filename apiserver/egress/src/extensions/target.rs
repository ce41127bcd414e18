//! The service behind an APIService.

use crate::address::AllowedAddresses;
use crate::dialer::{Destination, OutgoingBody, Security};
use crate::hooks::TargetError;
use crate::pool::Pool;
use crate::service;
use crate::trust::{ClientIdentity, Trust, Trusted, handshake_error_text};
use machinery_meta::reader::ObjectReader;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A service, the certificates that it may have, and the connections to it that wait for the next request.
#[derive(Debug)]
pub struct ExtensionTarget {
    namespace: String,
    name: String,
    port: u16,
    server_name: ServerName<'static>,
    trust: Trust,
    pool: Pool<OutgoingBody>,
}

impl ExtensionTarget {
    /// A service of the cluster; its certificate is for `NAME.NAMESPACE.svc`, and it is shown ours.
    ///
    /// # Errors
    /// The authorities are none, or the names make no host.
    pub fn new(
        (namespace, name): (&str, &str),
        port: u16,
        trusted: Trusted<'_>,
        identity: &Arc<ClientIdentity>,
    ) -> Result<Self, TargetError> {
        let server_name = ServerName::try_from(format!("{name}.{namespace}.svc"));
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port,
            server_name: server_name.map_err(|error| TargetError::Url(error.to_string()))?,
            trust: Trust::showing(trusted, identity).map_err(TargetError::Authorities)?,
            pool: Pool::default(),
        })
    }

    /// Namespace and name of the service.
    pub fn service(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    /// The port of the service.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn pool(&self) -> &Pool<OutgoingBody> {
        &self.pool
    }

    /// The endpoint to connect to now: only what pods and others outside of this machine can have, since writers of services
    /// need not be registrars of extensions.
    pub(super) async fn destination(
        &self,
        reader: &dyn ObjectReader,
        choice: u64,
    ) -> Result<Destination, String> {
        let service = (self.namespace.as_str(), self.name.as_str());
        let (host, port) = service::resolve(reader, service, self.port, choice).await?;
        Ok(Destination {
            host,
            port,
            security: Security::Given,
            reach: AllowedAddresses::Global,
        })
    }

    pub(super) async fn shake_hands(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let connector = TlsConnector::from(self.trust.config());
        let shaken = connector.connect(self.server_name.clone(), stream).await;
        shaken.map_err(|error| handshake_error_text(&error))
    }
}
