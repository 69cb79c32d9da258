// The list of cases: a name, the entities that a case wants, and what it does.
//
// Every case has entities of its own, so all of them can run at once. Settings are
// those of the server's configuration file.
package main

type settings = map[string]any

// Wants says what a case needs: a queue or a topic with its own name, and other queues.
type Wants struct {
	queue, topic settings
	queues       map[string]settings
	namespace    string
}

// Case is one entry of the list.
type Case struct {
	Name      string     `json:"name"`
	Namespace string     `json:"namespace"`
	Queues    []settings `json:"queues"`
	Topics    []settings `json:"topics"`
	body      func(*Bus)
}

var cases = map[string]Case{}
var order []string

var plain = Wants{queue: settings{}}
var nothing = Wants{}
var sessionful = Wants{queue: settings{"requires_session": true}}

func test(name string, wants Wants, body func(*Bus)) {
	if _, known := cases[name]; known {
		panic("There are two cases " + name)
	}
	entry := Case{name, "plain", []settings{}, []settings{}, body}
	if wants.namespace != "" {
		entry.Namespace = wants.namespace
	}
	if wants.queue != nil {
		entry.Queues = append(entry.Queues, named(name, wants.queue))
	}
	for key, value := range wants.queues {
		entry.Queues = append(entry.Queues, named(key, value))
	}
	if wants.topic != nil {
		entry.Topics = append(entry.Topics, named(name, wants.topic))
	}
	cases[name] = entry
	order = append(order, name)
}

func named(name string, given settings) settings {
	all := settings{"name": name}
	for key, value := range given {
		all[key] = value
	}
	return all
}

func topicOf(subscriptions ...settings) Wants {
	return Wants{topic: settings{"subscriptions": subscriptions}}
}

// subscription has these rules; without any it gets every message.
func subscription(name string, given settings, rules ...settings) settings {
	all := named(name, given)
	if len(rules) > 0 {
		all["rules"] = rules
	}
	return all
}

func rule(name, kind string, filter any, action string) settings {
	all := settings{"name": name, "filter": settings{kind: filter}}
	if action != "" {
		all["action"] = action
	}
	return all
}
