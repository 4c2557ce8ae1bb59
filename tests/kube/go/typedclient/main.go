// Reads objects into the typed structs of Go, changes one field of each and writes them back, as controllers do.
//
// Standard input is a JSON list of requests: the path of an object, and the encoding of the write (json or protobuf).
// Standard output is a JSON list with the status code and the body of each write.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

const protobufType = "application/vnd.kubernetes.protobuf"

type request struct {
	Path     string `json:"path"`
	Encoding string `json:"encoding"`
}

type answer struct {
	Code int             `json:"code"`
	Body json.RawMessage `json:"body"`
}

type client struct {
	http   http.Client
	server string
	token  string
	scheme *runtime.Scheme
}

func main() {
	server := flag.String("server", "", "address of the API server")
	token := flag.String("token", "", "bearer token")
	ca := flag.String("ca", "", "file with the certificate of its CA")
	flag.Parse()
	if err := run(*server, *token, *ca); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(server, token, ca string) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	c := client{http.Client{Transport: transport}, server, token, runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme, rbacv1.AddToScheme,
		schedulingv1.AddToScheme, storagev1.AddToScheme, jobset.AddToScheme, trainer.AddToScheme, kubeflow.AddToScheme,
	} {
		if err := add(c.scheme); err != nil {
			return err
		}
	}
	var requests []request
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		return err
	}
	answers := []answer{}
	for _, one := range requests {
		written, err := c.writeBack(one)
		// Controllers of the server may write in between; clients then read again.
		for err == nil && written.Code == http.StatusConflict {
			written, err = c.writeBack(one)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", one.Path, err)
		}
		answers = append(answers, written)
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}

func (c *client) writeBack(one request) (answer, error) {
	read, err := c.call(http.MethodGet, one.Path, "", nil)
	if err != nil {
		return answer{}, err
	}
	if read.Code != http.StatusOK {
		return answer{}, fmt.Errorf("cannot be read: %s", read.Body)
	}
	var named metav1.TypeMeta
	if err := json.Unmarshal(read.Body, &named); err != nil {
		return answer{}, err
	}
	object, err := c.scheme.New(named.GroupVersionKind())
	if err != nil {
		return answer{}, err
	}
	if err := json.Unmarshal(read.Body, object); err != nil {
		return answer{}, err
	}
	if err := change(object, one.Encoding); err != nil {
		return answer{}, err
	}
	if one.Encoding == "protobuf" {
		var body bytes.Buffer
		if err := protobuf.NewSerializer(c.scheme, c.scheme).Encode(object, &body); err != nil {
			return answer{}, err
		}
		return c.call(http.MethodPut, one.Path, protobufType, body.Bytes())
	}
	body, err := json.Marshal(object)
	if err != nil {
		return answer{}, err
	}
	return c.call(http.MethodPut, one.Path, "application/json", body)
}

// change sets what any object lets a client set: an annotation, and suspend where there is one.
func change(object runtime.Object, value string) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	annotations := map[string]string{"written-by": value}
	for name, text := range accessor.GetAnnotations() {
		if name != "written-by" {
			annotations[name] = text
		}
	}
	accessor.SetAnnotations(annotations)
	suspend := true
	switch typed := object.(type) {
	case *batchv1.Job:
		typed.Spec.Suspend = &suspend
	case *jobset.JobSet:
		typed.Spec.Suspend = &suspend
	case *trainer.TrainJob:
		typed.Spec.Suspend = &suspend
	case *kubeflow.JAXJob:
		typed.Spec.RunPolicy.Suspend = &suspend
	case *kubeflow.MPIJob:
		typed.Spec.RunPolicy.Suspend = &suspend
	case *kubeflow.PaddleJob:
		typed.Spec.RunPolicy.Suspend = &suspend
	case *kubeflow.PyTorchJob:
		typed.Spec.RunPolicy.Suspend = &suspend
	case *kubeflow.TFJob:
		typed.Spec.RunPolicy.Suspend = &suspend
	case *kubeflow.XGBoostJob:
		typed.Spec.RunPolicy.Suspend = &suspend
	}
	return nil
}

func (c *client) call(method, path, contentType string, body []byte) (answer, error) {
	request, err := http.NewRequest(method, c.server+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "typed-client")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	if !json.Valid(text) {
		return answer{}, fmt.Errorf("no JSON: %s", text)
	}
	return answer{response.StatusCode, text}, nil
}
