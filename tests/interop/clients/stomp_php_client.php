<?php
// stomp-php (Composer). Orders: see adapter.py.

require getenv("STOMPCODEC_COMPOSER") . "/vendor/autoload.php";

use Stomp\Client;
use Stomp\Network\Connection;
use Stomp\Network\Observer\HeartbeatEmitter;
use Stomp\Network\Observer\ServerAliveObserver;
use Stomp\Transport\Frame;

/** One connection. It reads only when it is asked to. */
class Link
{
    private Client $client;
    private array $messages = [];
    private array $waiting = [];

    public function __construct(array $order)
    {
        $connection = new Connection("tcp://{$order["host"]}:{$order["port"]}", 30);
        $connection->setReadTimeout(0, 100000); // shorter than heart-beats, which it sends as it reads
        $this->client = new Client($connection);
        $this->client->setLogin($order["login"], $order["passcode"]);
        $this->client->setVhostname($order["vhost"]);
        $this->client->setVersions([$order["version"]]);
        $this->client->setReceiptWait(30); // its default of 2 s is too short for a busy machine
        $this->client->setSync(false);
        if ($order["heart_beat"] !== [0, 0]) {
            $this->client->setHeartbeat(...$order["heart_beat"]);
            $connection->getObservers()->addObserver(new HeartbeatEmitter($connection));
            $connection->getObservers()->addObserver(new ServerAliveObserver());
        }
        $protocol = $this->client->getProtocol(); // it connects, and has one for each broker, with a window of 1
        foreach (array_intersect(["setPrefetchCount", "setPrefetchSize"], get_class_methods($protocol)) as $name) {
            $protocol->$name(100);
        }
    }

    public function connected(): array
    {
        return ["version" => $this->client->getProtocol()->getVersion()];
    }

    public function send(array $order): void
    {
        $headers = $order["headers"] + array_filter(["transaction" => $order["transaction"]]);
        $frame = new Frame("SEND", $headers, base64_decode($order["body"]));
        $frame->expectLengthHeader(!$order["text"]);
        $this->client->send($order["destination"], $frame, [], $order["receipt"]);
    }

    public function subscribe(array $order): void
    {
        $frame = $this->client->getProtocol()->getSubscribeFrame($order["destination"], $order["id"], $order["ack"]);
        $this->client->sendFrame($frame->addHeaders($order["headers"]), true);
    }

    public function receive(array $order): array
    {
        $this->waiting[$order["id"]] ??= [];
        if (!$this->waiting[$order["id"]] && ($frame = $this->client->readFrame())) {
            $this->messages[] = $frame;
            $this->waiting[$frame["subscription"]][] = [
                "handle" => (string) (count($this->messages) - 1),
                "headers" => (object) $frame->getHeaders(),
                "body" => base64_encode($frame->getBody() ?? ""),
            ];
        }
        return ["messages" => array_splice($this->waiting[$order["id"]], 0, $order["count"])];
    }

    /** ack, nack, unsubscribe, begin, commit and abort: the library has a frame for each. */
    public function __call(string $name, array $arguments): void
    {
        $order = $arguments[0];
        $given = isset($order["handle"]) ? [$this->messages[(int) $order["handle"]], $order["transaction"]]
            : [$order["transaction"] ?? $order["destination"], ...array_filter([$order["id"] ?? null])];
        $this->client->sendFrame($this->client->getProtocol()->{"get" . ucfirst($name) . "Frame"}(...$given));
    }

    public function alive(array $order): array
    {
        return ["alive" => $this->client->isConnected()];
    }

    public function close(array $order): void
    {
        $this->client->disconnect(true);
    }
}

$links = [];
while (($line = fgets(STDIN)) !== false) {
    $order = json_decode($line, true);
    try {
        if ($order["do"] === "open") {
            $links[$order["link"]] = new Link($order);
            $answer = $links[$order["link"]]->connected();
        } elseif ($order["do"] === "about") {
            $answer = ["library" => Composer\InstalledVersions::getPrettyVersion("stomp-php/stomp-php")];
        } else {
            $answer = $links[$order["link"]]->{$order["do"]}($order);
        }
        $said = ["ok" => (object) $answer];
    } catch (Throwable $e) {
        $said = ["error" => get_class($e) . ": " . $e->getMessage()];
    }
    echo json_encode($said, JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR), "\n";
}
