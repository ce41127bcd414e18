// Program envtest uses controller-runtime's test environment as suites of operators do: it starts the control plane whose programs
// lie in a folder, installs a definition, adds a user, runs a controller, stops, and starts again.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const patience = 30 * time.Second

var boats = schema.GroupVersionKind{Group: "harbour.example", Version: "v1", Kind: "Boat"}

func main() {
	if len(os.Args) != 2 {
		fail("usage", errors.New("envtest FOLDER-OF-PROGRAMS"))
	}
	ctrl.SetLogger(zap.New())
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	for range 2 {
		once(ctx, os.Args[1])
	}
	fmt.Println("passed")
}

// once starts a control plane, uses it and stops it, whatever fails.
func once(ctx context.Context, programs string) {
	environment := &envtest.Environment{
		BinaryAssetsDirectory: programs,
		CRDs:                  []*apiextensionsv1.CustomResourceDefinition{definition()},
	}
	_, err := environment.Start()
	defer func() { fail("stop", environment.Stop()) }()
	fail("start", err)
	use(ctx, environment)
	controller(ctx, environment)
}

// use writes objects as the administrator, and as a user with the rights that a role gives.
func use(ctx context.Context, environment *envtest.Environment) {
	administrator, err := client.New(environment.Config, client.Options{})
	fail("client", err)
	meta := metav1.ObjectMeta{Name: "a", Namespace: "default"}
	fail("create", administrator.Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}))
	container := corev1.Container{Name: "a", Image: "example/a"}
	fail("create a pod", administrator.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}))

	added, err := environment.AddUser(envtest.User{Name: "carol", Groups: []string{"sailors"}}, nil)
	fail("add a user", err)
	carol, err := client.New(added.Config(), client.Options{})
	fail("user's client", err)
	if refused := carol.List(ctx, &corev1.ConfigMapList{}); !apierrors.IsForbidden(refused) {
		fail("list as a user without rights", fmt.Errorf("want forbidden, got %v", refused))
	}
	// No controller fills the role "view" here.
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-view"}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "sailors"}}
	fail("bind", administrator.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, RoleRef: role, Subjects: subjects}))
	fail("list as a user", carol.List(ctx, &corev1.ConfigMapList{}))
}

// controller waits until a controller has reconciled an object of the definition.
func controller(ctx context.Context, environment *envtest.Environment) {
	ctx, cancel := context.WithCancel(ctx)
	skip := true
	options := ctrl.Options{Metrics: server.Options{BindAddress: "0"}}
	options.Controller.SkipNameValidation = &skip
	manager, err := ctrl.NewManager(environment.Config, options)
	fail("manager", err)
	reconciled := make(chan string, 8)
	boat := &unstructured.Unstructured{}
	boat.SetGroupVersionKind(boats)
	fail("controller", ctrl.NewControllerManagedBy(manager).For(boat).Complete(reconcile.Func(
		func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			reconciled <- request.Name
			return reconcile.Result{}, nil
		})))
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	one := boat.DeepCopy()
	one.SetName("b")
	one.SetNamespace("default")
	fail("create a boat", manager.GetClient().Create(ctx, one))
	select {
	case <-reconciled:
	case <-time.After(patience):
		fail("reconcile", errors.New("nothing was reconciled"))
	}
	cancel()
	fail("end of the manager", <-ended)
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	preserve := true
	object := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "boats." + boats.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: boats.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "boats", Singular: "boat", Kind: boats.Kind, ListKind: "BoatList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: boats.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: object},
			}},
		},
	}
}

// fail panics where there is an error, so that what was started is stopped.
func fail(what string, err error) {
	if err != nil {
		panic(fmt.Sprintf("%s: %v", what, err))
	}
}
