// cert-manager's controllers, its webhook and the injector of authorities in one program, without the Venafi issuer.
//
// The programs of cert-manager are in Go modules of their own, which the module proxy does not have; what they start is in
// the main module. This file is put into a copy of that module, since the webhook is one of its internal packages.
package main

import (
	"context"
	"flag"
	"log"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cert-manager/cert-manager/internal/apis/config/shared"
	webhookconfig "github.com/cert-manager/cert-manager/internal/apis/config/webhook"
	"github.com/cert-manager/cert-manager/internal/webhook"
	cmapi "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/metrics"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificatesigningrequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	logf "github.com/cert-manager/cert-manager/pkg/logs"
)

// Namespace that the chart installs into.
const namespace = "cert-manager"

func main() {
	webhookPort := flag.Int("webhook-port", 0, "port of the webhook")
	flag.Parse()
	// controller-runtime has defined this flag.
	kubeconfig := flag.Lookup("kubeconfig").Value.String()
	ctx := ctrl.SetupSignalHandler()
	go runWebhook(ctx, kubeconfig, *webhookPort)
	go runInjector(ctx, kubeconfig)
	runControllers(ctx, kubeconfig)
}

func runControllers(ctx context.Context, kubeconfig string) {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: namespace},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerKind:                 "Issuer",
			DefaultIssuerGroup:                "cert-manager.io",
			DefaultAutoCertificateAnnotations: []string{"kubernetes.io/tls-acme"},
		},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: 60},
	})
	check(err)
	for name, construct := range controller.Known() {
		loop, err := construct(factory)
		check(err)
		go func() { check(loop.Run(2, ctx)) }()
		log.Print("started ", name)
	}
	base, err := factory.Build()
	check(err)
	base.SharedInformerFactory.Start(ctx.Done())
	base.KubeSharedInformerFactory.Start(ctx.Done())
	base.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	<-ctx.Done()
}

func runWebhook(ctx context.Context, kubeconfig string, port int) {
	server, err := webhook.NewCertManagerWebhookServer(logf.Log, webhookconfig.WebhookConfiguration{
		SecurePort: int32(port),
		KubeConfig: kubeconfig,
		TLSConfig: shared.TLSConfig{Dynamic: shared.DynamicServingConfig{
			SecretNamespace: namespace,
			SecretName:      "cert-manager-webhook-ca",
			DNSNames:        []string{"cert-manager-webhook.cert-manager.svc"},
			LeafDuration:    24 * time.Hour,
		}},
		MetricsListenAddress: "0",
	})
	check(err)
	check(server.Run(ctx))
}

func runInjector(ctx context.Context, kubeconfig string) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, cmapi.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
		admissionv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	check(err)
	config.UserAgent = "cert-manager-cainjector/v1.21.2"
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	check(err)
	check(cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
			cainjector.APIServiceName:                     true,
			cainjector.CustomResourceDefinitionName:       true,
		},
	}))
	check(manager.Start(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
