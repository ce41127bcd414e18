package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// client asks the server for documents. It believes the server's certificate: both are ours, on loopback.
type client struct {
	server, token string
}

func (c *client) get(path, accept string, into any) error {
	body, err := c.do(http.MethodGet, path, accept, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (c *client) create(path, object string) error {
	_, err := c.do(http.MethodPost, path, "application/json", strings.NewReader(object))
	return err
}

func (c *client) do(method, path, accept string, body io.Reader) ([]byte, error) {
	request, err := http.NewRequest(method, c.server+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", accept)
	request.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, answer)
	}
	return answer, nil
}
